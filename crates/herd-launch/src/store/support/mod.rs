//! Whether the workers of an interpreter will speak the store's protocol, found out before Python
//! starts: from the files of the torch that it would import. Nothing is run and nothing imported, since
//! either takes longer than starting the workers.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The oldest torch whose clients speak the protocol.
const OLDEST: (u32, u32) = (2, 2);
/// The newest torch that was tried. Its protocol has only ever grown at the end, but whether a newer
/// one is as it was nobody can know.
const NEWEST: (u32, u32) = (2, 15);
/// The most of a file that is read.
const FILE_MAX: u64 = 64 * 1024;
/// The most `.pth` files that are read in a directory.
const PTH_MAX: usize = 64;
/// The most entries of a directory that are looked at.
const ENTRIES_MAX: usize = 20_000;

/// What is known of the torch that an interpreter would import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Support {
    /// This version speaks the protocol: workers may use the launcher's store.
    Known(String),
    /// This version is older than 2.2 and speaks another protocol.
    TooOld(String),
    /// There is one, or may be one, and what it speaks is not known; the text says why.
    Unknown(String),
    /// The interpreter has no torch.
    Absent,
}

/// Finds the torch of a Python interpreter. `environment` looks up a variable of the workers
/// (PYTHONPATH and those that say where a user's own packages are).
///
/// Where Python would look in the order of `sys.path`, but not in the directory of the script.
pub fn support<'a>(interpreter: &Path, environment: impl Fn(&str) -> Option<&'a OsStr>) -> Support {
    let set = |name| environment(name).filter(|value| !value.is_empty());
    let mut directories = Vec::new();
    if let Some(path) = set("PYTHONPATH") {
        directories.extend(std::env::split_paths(path).filter(|path| path.is_absolute()));
    }
    let Some(place) = Place::of(interpreter) else {
        let text = format!("{} is no Python interpreter", interpreter.display());
        return Support::Unknown(text);
    };
    if place.has_user_site && set("PYTHONNOUSERSITE").is_none() {
        let home = set("HOME").map(|home| Path::new(home).join(".local"));
        let base = set("PYTHONUSERBASE").map(PathBuf::from).or(home);
        if let Some(base) = base {
            directories.extend(site_directories(&base, place.version.as_deref(), false));
        }
    }
    for prefix in &place.prefixes {
        directories.extend(site_directories(prefix, place.version.as_deref(), true));
    }
    match find(&directories) {
        Some(Found::Version(version)) => judge(version),
        Some(Found::Unreadable(path)) => {
            Support::Unknown(format!("{} names no version", path.display()))
        }
        None => Support::Absent,
    }
}

/// Where an interpreter has its packages.
#[derive(Debug)]
struct Place {
    /// `3.11`, where the files say so.
    version: Option<String>,
    /// Directories with a `lib` of their own, in the order in which they are searched.
    prefixes: Vec<PathBuf>,
    has_user_site: bool,
}

impl Place {
    fn of(interpreter: &Path) -> Option<Self> {
        let real = fs::canonicalize(interpreter).ok()?;
        if !is_program(&real) {
            // A shim: a script that decides each time which Python to run.
            return None;
        }
        let mut version = version_in_name(&real);
        let base = real.parent().and_then(Path::parent).map(PathBuf::from);
        let directory = interpreter.parent()?;
        let configuration = [directory.parent(), Some(directory)]
            .into_iter()
            .flatten()
            .map(|prefix| (prefix, prefix.join("pyvenv.cfg")))
            .find_map(|(prefix, path)| Some((prefix, read(&path)?)));
        let Some((prefix, text)) = configuration else {
            let own = interpreter.parent().and_then(Path::parent);
            let mut prefixes: Vec<_> = base.into_iter().collect();
            // The same interpreter by another name (`/bin` is often `/usr/bin`) is the same place.
            prefixes.extend(
                own.map(PathBuf::from)
                    .filter(|own| own.join("lib").is_dir()),
            );
            prefixes.dedup();
            return Some(Self {
                version,
                prefixes,
                has_user_site: true,
            });
        };
        let setting = |name: &str| {
            text.lines().find_map(|line| {
                let (key, value) = line.split_once('=')?;
                (key.trim() == name).then(|| value.trim())
            })
        };
        let written = setting("version").or_else(|| setting("version_info"));
        version = written.and_then(major_and_minor).or(version);
        let mut prefixes = vec![prefix.to_owned()];
        let system = setting("include-system-site-packages");
        let system = system.is_some_and(|value| value.eq_ignore_ascii_case("true"));
        if system {
            let home = setting("home").and_then(|home| Path::new(home).parent());
            prefixes.extend(home.map(PathBuf::from).or(base));
        }
        Some(Self {
            version,
            prefixes,
            has_user_site: system,
        })
    }
}

/// Whether it is what the kernel runs itself, not a script.
fn is_program(path: &Path) -> bool {
    let mut magic = [0; 4];
    let opened = File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    opened.is_ok() && magic == *b"\x7fELF"
}

fn version_in_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let rest = name.strip_prefix("python")?;
    rest.contains('.').then(|| major_and_minor(rest))?
}

/// `3.11` of `3.11.7`.
fn major_and_minor(version: &str) -> Option<String> {
    let mut parts = version.split('.');
    let mut number = || {
        let part = parts.next()?;
        let end = part.find(|letter: char| !letter.is_ascii_digit());
        part.get(..end.unwrap_or(part.len()))?.parse::<u32>().ok()
    };
    let (major, minor) = (number()?, number()?);
    Some(format!("{major}.{minor}"))
}

/// The directories of packages below a prefix that exist, as Python and Debian's Python have them.
fn site_directories(prefix: &Path, version: Option<&str>, system: bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let bases = if system {
        vec![prefix.join("local"), prefix.to_owned()]
    } else {
        vec![prefix.to_owned()]
    };
    for base in bases {
        for lib in ["lib", "lib64"] {
            let lib = base.join(lib);
            let names = match version {
                Some(version) => vec![format!("python{version}")],
                None => pythons_in(&lib),
            };
            for name in names {
                found.push(lib.join(&name).join("site-packages"));
                found.push(lib.join(&name).join("dist-packages"));
            }
            found.push(lib.join("python3/dist-packages"));
        }
    }
    found.retain(|directory| directory.is_dir());
    found
}

/// The names of the directories of all Pythons in a `lib`, for an interpreter that does not say which
/// one it is.
fn pythons_in(lib: &Path) -> Vec<String> {
    let names = entries(lib).into_iter();
    let mut names: Vec<_> = names.filter(|name| name.starts_with("python3.")).collect();
    names.sort();
    names
}

/// The names in a directory that are text.
fn entries(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let entries = entries.flatten().take(ENTRIES_MAX);
    let names = entries.map(|entry| entry.file_name().into_string());
    names.flatten().collect()
}

#[derive(Debug)]
enum Found {
    Version(String),
    /// It is there, and says nothing.
    Unreadable(PathBuf),
}

/// The first torch in these directories, and after them in those that their `.pth` files add.
fn find(directories: &[PathBuf]) -> Option<Found> {
    let added = directories.iter().flat_map(|directory| added_by(directory));
    let all = directories.iter().cloned().chain(added);
    all.into_iter()
        .find_map(|directory| in_directory(&directory))
}

fn in_directory(directory: &Path) -> Option<Found> {
    let package = directory.join("torch");
    if package.join("__init__.py").is_file() {
        let file = package.join("version.py");
        let text = read(&file).unwrap_or_default();
        return Some(match version_in(&text) {
            Some(version) => Found::Version(version),
            None => of_distribution(directory).map_or(Found::Unreadable(file), Found::Version),
        });
    }
    // Installed, but its files lie elsewhere (an editable installation).
    of_distribution(directory).map(Found::Version)
}

/// The version in the name of the directory that an installer leaves beside a package.
fn of_distribution(directory: &Path) -> Option<String> {
    entries(directory).into_iter().find_map(|name| {
        let version = name.strip_suffix(".dist-info")?.strip_prefix("torch-")?;
        Some(version.to_owned())
    })
}

/// What stands between the quotes after `__version__ =`.
fn version_in(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("__version__"))?;
    let (_, value) = line.split_once('=')?;
    let value = value.trim();
    let quote = value
        .chars()
        .next()
        .filter(|quote| "'\"".contains(*quote))?;
    let (version, _) = value.get(1..)?.split_once(quote)?;
    Some(version.to_owned())
}

/// The directories that a directory's `.pth` files name; lines that are code are not run.
fn added_by(directory: &Path) -> Vec<PathBuf> {
    let mut files = entries(directory);
    files.retain(|name| Path::new(name).extension() == Some(OsStr::from_bytes(b"pth")));
    files.sort();
    let mut added = Vec::new();
    for file in files.iter().take(PTH_MAX) {
        let text = read(&directory.join(file)).unwrap_or_default();
        let lines = text.lines().map(str::trim_end);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with(['#', '\t']));
        let paths = lines.filter(|line| !line.starts_with("import "));
        added.extend(paths.map(|path| directory.join(path)));
    }
    added
}

fn read(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(FILE_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn judge(version: String) -> Support {
    let numbers = major_and_minor(&version);
    let numbers = numbers.as_deref().and_then(|text| text.split_once('.'));
    let numbers =
        numbers.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    match numbers {
        Some(numbers) if numbers < OLDEST => Support::TooOld(version),
        Some(numbers) if numbers <= NEWEST => Support::Known(version),
        Some(_) => Support::Unknown(format!("torch {version} is newer than what herd knows")),
        None => Support::Unknown(format!(
            "`{version}` is no version of torch that herd can read"
        )),
    }
}

#[cfg(test)]
mod tests;
