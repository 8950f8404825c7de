//! herd's own programs on the login node: named by what is in them, copied there once, checked when
//! they arrive.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use blake2::{Blake2s256, Digest};
use serde::{Deserialize, Serialize};

use crate::channel::Channel;
use crate::digest::hex;
use crate::error::LoginError;
use crate::protocol::{Hello, PROTOCOL};
use crate::script;
use crate::ssh::Ssh;

/// The programs of one installation, in the order in which they are hashed and copied.
pub const NAMES: [&str; 2] = ["herd", "herd-node"];
/// How long a login node may take to answer, login scripts included.
pub const HELLO_BOUND: Duration = Duration::from_secs(30);
/// How long copying may go without a sign.
const COPY_BOUND: Duration = Duration::from_mins(10);
/// A release that nobody has used for so long is removed there when another one comes. Its directory's
/// time is that of its last use.
const UNUSED: Duration = Duration::from_hours(90 * 24);
/// The same for what broke off while it was copied.
const BROKEN_OFF: Duration = Duration::from_hours(24);
/// Bytes read at once.
const CHUNK: usize = 256 * 1024;

/// The programs beside the one that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    directory: PathBuf,
    hash: String,
}

/// What was hashed before, and of which files; a cache.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    files: Vec<(PathBuf, u64, u64, i64, i64)>,
    hash: String,
}

/// 32 digits that nobody can know beforehand.
pub fn nonce() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::from)?;
    Ok(hex(&bytes))
}

/// The hash of the programs in a directory.
pub fn hash_of(directory: &Path) -> io::Result<String> {
    let mut hash = Blake2s256::new();
    for name in NAMES {
        let mut file = File::open(directory.join(name))?;
        hash.update(file.metadata()?.len().to_le_bytes());
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = file.read(&mut chunk)?;
            if read == 0 {
                break;
            }
            hash.update(chunk.get(..read).unwrap_or_default());
        }
    }
    Ok(hex(&hash.finalize()))
}

impl Programs {
    /// Those in this directory. `cache` is a file that remembers their hash.
    pub fn in_directory(directory: &Path, cache: &Path) -> Result<Self, LoginError> {
        let failed = |source| {
            LoginError::here(
                format!("read the programs in {}", directory.display()),
                source,
            )
        };
        let files = NAMES
            .iter()
            .map(|name| {
                let path = directory.join(name);
                let meta = std::fs::metadata(&path)?;
                Ok((
                    path,
                    meta.len(),
                    meta.ino(),
                    meta.mtime(),
                    meta.mtime_nsec(),
                ))
            })
            .collect::<io::Result<Vec<_>>>()
            .map_err(failed)?;
        let known = std::fs::read(cache)
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Known>(&bytes).ok())
            .filter(|known| known.files == files);
        let hash = if let Some(known) = known {
            known.hash
        } else {
            let hash = hash_of(directory).map_err(failed)?;
            let known = Known {
                files,
                hash: hash.clone(),
            };
            // Only a cache: without it they are read again.
            drop(write_cache(cache, &known));
            hash
        };
        Ok(Self {
            directory: directory.to_owned(),
            hash,
        })
    }

    /// Starts `herd login-node` there, copied before where it is missing.
    pub fn start(
        &self,
        ssh: &Ssh,
        relay: bool,
        within: Duration,
    ) -> Result<(Channel, Hello), LoginError> {
        ssh.target().check()?;
        match self.begin(ssh, relay, within)? {
            Begun::Runs(channel, hello) => Ok((channel, hello)),
            Begun::Missing(machine) => {
                self.install(ssh, &machine)?;
                match self.begin(ssh, relay, within)? {
                    Begun::Runs(channel, hello) => Ok((channel, hello)),
                    Begun::Missing(_) => Err(LoginError::Program {
                        host: ssh.target().host.clone(),
                        why: "it is not there after it was copied".to_owned(),
                    }),
                }
            }
        }
    }

    /// The command that runs this request there with a terminal; nothing where a path there would need
    /// quoting, which each login shell does in its own way.
    pub fn with_terminal(&self, ssh: &Ssh, request: &[u8]) -> Option<std::process::Command> {
        let line = script::with_terminal(ssh.target(), &self.hash, &hex(request))?;
        Some(ssh.command(&line, true))
    }

    fn begin(&self, ssh: &Ssh, relay: bool, within: Duration) -> Result<Begun, LoginError> {
        let mark = nonce().map_err(|source| LoginError::here("draw a random number", source))?;
        let line = script::start(ssh.target(), &self.hash, &mark);
        let mut channel = Channel::open(ssh, &line, &mark, relay)?;
        let said = channel.marked(within)?;
        if let Some(machine) = said.strip_prefix(script::MISSING) {
            return Ok(Begun::Missing(machine.trim().to_owned()));
        }
        let hello = greeting(&channel, &said)?;
        Ok(Begun::Runs(channel, hello))
    }

    /// Copies the programs there.
    fn install(&self, ssh: &Ssh, machine: &str) -> Result<(), LoginError> {
        let host = || ssh.target().host.clone();
        let own = format!("Linux {}", std::env::consts::ARCH);
        let refused = |why: String| LoginError::Program { host: host(), why };
        if ssh.target().program.is_some() {
            return Err(refused(
                "`program` in the configuration names no program there".to_owned(),
            ));
        }
        if machine != own {
            return Err(refused(format!(
                "it is for {own}, and that machine is {machine}"
            )));
        }
        let mark = nonce().map_err(|source| LoginError::here("draw a random number", source))?;
        let archive = Archive::of(&self.directory)?;
        let line = script::install(ssh.target(), archive.length, &mark);
        let mut channel = Channel::open(ssh, &line, &mark, false)?;
        channel.marked(HELLO_BOUND)?;
        archive.write(&mut channel)?;
        let said = channel.marked(COPY_BOUND)?;
        greeting(&channel, &said)?;
        let asked = crate::protocol::Request::Install {
            hash: self.hash.clone(),
        };
        let reply: crate::protocol::Reply<()> =
            crate::protocol::ask(&mut channel, &asked, COPY_BOUND)?;
        reply.map_err(|refusal| refused(refusal.text))
    }
}

enum Begun {
    Runs(Channel, Hello),
    /// What `uname` says of the machine.
    Missing(String),
}

fn greeting(channel: &Channel, said: &str) -> Result<Hello, LoginError> {
    let hello: Hello = serde_json::from_str(said)
        .map_err(|error| channel.misunderstood(format!("no greeting: {error}")))?;
    if hello.protocol == PROTOCOL {
        Ok(hello)
    } else {
        Err(channel.misunderstood(format!(
            "it is herd {}, whose protocol is {} and not {PROTOCOL}",
            hello.version, hello.protocol
        )))
    }
}

/// A tar archive of the programs, of a length that is known beforehand.
struct Archive {
    files: Vec<(tar::Header, File, u64)>,
    length: u64,
}

/// Archives are made of these.
const BLOCK: u64 = 512;
/// Two empty ones end it.
const END: usize = 1024;

impl Archive {
    fn of(directory: &Path) -> Result<Self, LoginError> {
        let mut files = Vec::new();
        let mut length = END as u64;
        for name in NAMES {
            let path = directory.join(name);
            let failed = |source| LoginError::here(format!("read {}", path.display()), source);
            let file = File::open(&path).map_err(failed)?;
            let size = file.metadata().map_err(failed)?.len();
            let mut header = tar::Header::new_ustar();
            header.set_path(name).map_err(failed)?;
            header.set_mode(0o700);
            header.set_size(size);
            header.set_cksum();
            length += BLOCK + size.next_multiple_of(BLOCK);
            files.push((header, file, size));
        }
        Ok(Self { files, length })
    }

    fn write(self, channel: &mut Channel) -> Result<(), LoginError> {
        let mut chunk = vec![0; CHUNK];
        for (header, mut file, size) in self.files {
            channel.write(header.as_bytes())?;
            let mut left = size.next_multiple_of(BLOCK);
            let mut source = (&mut file).take(size).chain(io::repeat(0));
            while left > 0 {
                let most = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
                let part = chunk.get_mut(..most).unwrap_or_default();
                source
                    .read_exact(part)
                    .map_err(|source| LoginError::here("read herd's own programs", source))?;
                channel.write(part)?;
                left -= most as u64;
            }
        }
        channel.write(&[0; END])
    }
}

fn write_cache(path: &Path, known: &Known) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let temporary = path.with_extension(std::process::id().to_string());
    std::fs::write(&temporary, serde_json::to_vec(known)?)?;
    std::fs::rename(&temporary, path)
}

/// Takes programs that were unpacked beside the others into use, after a look at what arrived. `new` is
/// the directory of the program that runs.
pub fn take_into_use(new: &Path, hash: &str) -> Result<(), String> {
    let arrived = hash_of(new).map_err(|error| format!("cannot read what arrived: {error}"));
    let wrong = match arrived {
        Ok(found) if found == hash => None,
        Ok(_) => Some("what arrived is not what was sent".to_owned()),
        Err(error) => Some(error),
    };
    let is_new = new
        .file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.starts_with("new."));
    let Some(programs) = new.parent().filter(|_| is_new && is_hash(hash)) else {
        return Err("it was not unpacked where programs belong".to_owned());
    };
    if let Some(wrong) = wrong {
        drop(std::fs::remove_dir_all(new));
        return Err(wrong);
    }
    forget_old(programs);
    let place = programs.join(hash);
    match std::fs::rename(new, &place) {
        Ok(()) => Ok(()),
        // Another one was quicker.
        Err(_) if place.join(NAMES[0]).is_file() => {
            drop(std::fs::remove_dir_all(new));
            Ok(())
        }
        Err(error) => Err(format!("cannot rename it to {}: {error}", place.display())),
    }
}

/// Removes releases that nobody has used for long, and what broke off before it had arrived.
fn forget_old(programs: &Path) {
    for entry in std::fs::read_dir(programs).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let most = match (is_hash(&name), name.starts_with("new.")) {
            (true, _) => UNUSED,
            (_, true) => BROKEN_OFF,
            _ => continue,
        };
        let changed = entry.metadata().and_then(|meta| meta.modified());
        let is_old = changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > most));
        if is_old {
            drop(std::fs::remove_dir_all(entry.path()));
        }
    }
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs(directory: &Path) {
        std::fs::create_dir_all(directory).unwrap();
        std::fs::write(directory.join("herd"), "one").unwrap();
        std::fs::write(directory.join("herd-node"), "two").unwrap();
    }

    #[test]
    fn programs_are_hashed_once_and_again_when_they_change() {
        let dir = tempfile::tempdir().unwrap();
        programs(dir.path());
        let cache = dir.path().join("a/cache.json");
        let first = Programs::in_directory(dir.path(), &cache).unwrap();
        assert_eq!(first.hash, hash_of(dir.path()).unwrap());
        assert_eq!(Programs::in_directory(dir.path(), &cache).unwrap(), first);
        std::fs::write(dir.path().join("herd"), "other").unwrap();
        let changed = Programs::in_directory(dir.path(), &cache).unwrap();
        assert_ne!(changed.hash, first.hash);
    }

    #[test]
    fn only_what_arrived_whole_is_taken_into_use() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("new.abc");
        programs(&new);
        let hash = hash_of(&new).unwrap();
        take_into_use(&new, &hash).unwrap();
        assert!(dir.path().join(&hash).join("herd").is_file());
        programs(&new);
        take_into_use(&new, &hash).unwrap();
        assert!(!new.exists());
        programs(&new);
        std::fs::write(new.join("herd"), "on").unwrap();
        assert!(
            take_into_use(&new, &hash)
                .unwrap_err()
                .contains("not what was sent")
        );
        assert!(!new.exists());
        assert!(take_into_use(&dir.path().join(&hash), "../x").is_err());
    }
}
