//! Who may use which GPU or CPU of this machine: locked files in one directory for all users.
//!
//! The kernel releases a dead holder's locks, so no lease is ever left behind and nobody has to
//! clean up. The locks bind those who ask here; they stop no program from using a GPU. Only what
//! a job asks for is leased, and a job that asks for nothing never touches the directory.
//! Nothing waits in here: callers ask again when the directory changes, and from time to time.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use herd_core::JobId;
use nix::libc;
use nix::poll::{PollTimeout, poll};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Variable that names another directory.
pub const DIRECTORY_VARIABLE: &str = "HERD_LEASE_DIR";
/// Where the directory is looked for and made, in this order.
const DIRECTORIES: [&str; 2] = ["/run/lock/herd", "/tmp/herd-lock"];
/// Longest entry that is read: entries come from other users.
const ENTRY_BYTES: u64 = 4096;
/// Most entries looked at in the queue and among the holders.
const MAX_ENTRIES: usize = 10_000;
/// Tries for the gate, a millisecond apart: it is held for microseconds.
const GATE_TRIES: u32 = 50;
/// An entry that was never finished is removed after this long.
const UNFINISHED_SECONDS: u64 = 60;

/// What a job asks for, all its emulated nodes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Need {
    /// GPUs.
    pub gpus: u32,
    /// CPUs.
    pub cpus: u32,
}

/// What there is to lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stock {
    /// GPUs by name.
    pub gpus: Vec<String>,
    /// Number of CPUs.
    pub cpus: u32,
}

/// A job that wants a lease.
#[derive(Clone, Debug)]
pub struct Ticket {
    /// The job.
    pub job: JobId,
    /// Its user's name.
    pub user: String,
    /// 0 to 100, higher first.
    pub priority: u32,
    /// When it was submitted, milliseconds since the Unix epoch; earlier goes first.
    pub created_ms: u64,
    /// What it asks for.
    pub need: Need,
}

/// The directory of locks.
#[derive(Clone, Debug)]
pub struct Leases {
    directory: PathBuf,
}

/// A place in the queue; left when dropped.
#[derive(Debug)]
pub struct Waiting {
    leases: Leases,
    ticket: Ticket,
    stock: Stock,
    /// Absent for a job that asks for nothing.
    place: Option<Place>,
}

/// What a job holds; given back when dropped, or by the kernel when the process dies.
#[derive(Debug)]
pub struct Lease {
    /// GPUs, in the order of the stock.
    pub gpus: Vec<String>,
    /// Slots, one per CPU; they count, they name no particular CPU.
    pub cpus: Vec<u32>,
    _locks: Vec<File>,
    _place: Option<Place>,
}

/// The leases cannot be used.
#[derive(Debug, Error)]
pub enum LeaseError {
    /// More than the machine has.
    #[error("{asked} asked for, and this machine has {present}")]
    Never {
        /// What was asked for.
        asked: Need,
        /// What there is.
        present: Need,
    },
    /// No directory can be trusted.
    #[error("cannot use {} for leases: {reason}", path.display())]
    Refused {
        /// The directory.
        path: PathBuf,
        /// Why.
        reason: &'static str,
    },
    /// The system refused.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

/// A locked entry that says who waits or holds.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    /// Keeps the lock.
    _file: File,
}

/// Content of an entry; readable by everybody.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    job: JobId,
    user: String,
    need: Need,
    /// What is held, among the holders.
    #[serde(default)]
    gpus: Vec<String>,
}

impl Need {
    fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Whether both want some of the same kind.
    fn competes(self, other: Self) -> bool {
        (self.gpus > 0 && other.gpus > 0) || (self.cpus > 0 && other.cpus > 0)
    }

    fn fits(self, within: Self) -> bool {
        self.gpus <= within.gpus && self.cpus <= within.cpus
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.gpus, self.cpus) {
            (0, 0) => f.write_str("nothing"),
            (gpus, 0) => f.write_str(&amount(gpus, "GPU")),
            (0, cpus) => f.write_str(&amount(cpus, "CPU")),
            (gpus, cpus) => write!(f, "{} and {}", amount(gpus, "GPU"), amount(cpus, "CPU")),
        }
    }
}

impl Stock {
    fn total(&self) -> Need {
        Need { gpus: u32::try_from(self.gpus.len()).unwrap_or(u32::MAX), cpus: self.cpus }
    }
}

impl Leases {
    /// The machine's directory, or the one that [`DIRECTORY_VARIABLE`] named.
    pub fn open(directory: Option<&Path>) -> Result<Self, LeaseError> {
        if let Some(path) = directory {
            return Self::at(path);
        }
        let mut refusal = None;
        for path in DIRECTORIES {
            match Self::at(Path::new(path)) {
                Ok(leases) => return Ok(leases),
                Err(error) => refusal = Some(error),
            }
        }
        Err(refusal.expect("the list of directories is not empty"))
    }

    fn at(path: &Path) -> Result<Self, LeaseError> {
        for directory in [path, &path.join("queue"), &path.join("held")] {
            make_shared(directory)?;
        }
        Ok(Self { directory: path.to_path_buf() })
    }

    /// The directory; the queue and the holders are directly beneath it.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Directories that change when a lease may have come free: for a caller's watch.
    pub fn watched(&self) -> [PathBuf; 2] {
        [self.queue(), self.held()]
    }

    /// Takes a place in the queue. What can never be given is refused at once (I13).
    pub fn enqueue(&self, ticket: Ticket, stock: Stock) -> Result<Waiting, LeaseError> {
        if !ticket.need.fits(stock.total()) {
            return Err(LeaseError::Never { asked: ticket.need, present: stock.total() });
        }
        let place = if ticket.need.is_empty() {
            None
        } else {
            let entry = ticket.entry(Vec::new());
            Some(Place::take(&self.queue(), &ticket.queue_name(), &entry)?)
        };
        Ok(Waiting { leases: self.clone(), ticket, stock, place })
    }

    fn queue(&self) -> PathBuf {
        self.directory.join("queue")
    }

    fn held(&self) -> PathBuf {
        self.directory.join("held")
    }

    /// Live entries in the order of their names.
    fn live(&self, directory: &Path) -> Result<Vec<(String, Entry)>, LeaseError> {
        let listing = fs::read_dir(directory).map_err(failed("list", directory))?;
        let mut names: Vec<String> = listing
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .take(MAX_ENTRIES)
            .collect();
        names.sort_unstable();
        Ok(names
            .into_iter()
            .filter_map(|name| live_entry(&directory.join(&name)).map(|entry| (name, entry)))
            .collect())
    }

    /// Takes free locks of one kind until there are `wanted`; fewer where there are fewer.
    fn lock_free(
        &self,
        names: impl Iterator<Item = String>,
        wanted: u32,
    ) -> Result<Vec<(usize, File)>, LeaseError> {
        let mut locks = Vec::new();
        for (at, name) in names.enumerate() {
            if locks.len() == wanted as usize {
                break;
            }
            let path = self.directory.join(name);
            if let Some(file) = lock(&open_lock(&path)?, &path)? {
                locks.push((at, file));
            }
        }
        Ok(locks)
    }
}

impl Ticket {
    fn queue_name(&self) -> String {
        let rank = 100 - self.priority.min(100);
        format!("{rank:03}-{:015}-{}", self.created_ms, self.job)
    }

    fn entry(&self, gpus: Vec<String>) -> Entry {
        Entry { job: self.job, user: self.user.clone(), need: self.need, gpus }
    }
}

impl Waiting {
    /// The lease, where everything asked for is free and nobody goes first; never part of it.
    pub fn try_acquire(&mut self) -> Result<Option<Lease>, LeaseError> {
        if self.ticket.need.is_empty() {
            return Ok(Some(Lease {
                gpus: Vec::new(),
                cpus: Vec::new(),
                _locks: Vec::new(),
                _place: None,
            }));
        }
        // One at a time: two that take the last two GPUs one each would both go away empty.
        let Some(_gate) = self.gate()? else { return Ok(None) };
        if self.ahead()? > 0 {
            return Ok(None);
        }
        let Need { gpus: want_gpus, cpus: want_cpus } = self.ticket.need;
        let gpu_names = self.stock.gpus.iter().map(|gpu| format!("gpu-{}", file_name(gpu)));
        let gpus = self.leases.lock_free(gpu_names, want_gpus)?;
        if gpus.len() < want_gpus as usize {
            return Ok(None);
        }
        let cpu_names = (0..self.stock.cpus).map(|slot| format!("cpu-{slot}"));
        let cpus = self.leases.lock_free(cpu_names, want_cpus)?;
        if cpus.len() < want_cpus as usize {
            return Ok(None);
        }
        let names: Vec<String> = gpus.iter().map(|(at, _)| self.stock.gpus[*at].clone()).collect();
        let entry = self.ticket.entry(names.clone());
        // With the process: the next attempt's entry is never removed in place of this one's.
        let name = format!("{}-{}", self.ticket.job, std::process::id());
        let place = Place::take(&self.leases.held(), &name, &entry)?;
        self.place = None;
        Ok(Some(Lease {
            gpus: names,
            cpus: cpus.iter().map(|(at, _)| u32::try_from(*at).unwrap_or(u32::MAX)).collect(),
            _locks: gpus.into_iter().chain(cpus).map(|(_, file)| file).collect(),
            _place: Some(place),
        }))
    }

    /// One sentence: what this job waits for.
    pub fn why(&self) -> Result<String, LeaseError> {
        let need = self.ticket.need;
        let holders: Vec<Entry> = self
            .leases
            .live(&self.leases.held())?
            .into_iter()
            .map(|(_, entry)| entry)
            .filter(|entry| entry.need.competes(need))
            .collect();
        let total = self.stock.total();
        let mut parts = Vec::new();
        if need.gpus > 0 {
            // A GPU of another's share of the machine is not one of ours.
            let taken = holders.iter().flat_map(|entry| &entry.gpus);
            let taken = taken.filter(|gpu| self.stock.gpus.contains(gpu)).count();
            let taken = u32::try_from(taken).unwrap_or(u32::MAX);
            parts.push(format!("{} of {} GPUs free", total.gpus.saturating_sub(taken), total.gpus));
        }
        if need.cpus > 0 {
            let taken = holders.iter().fold(0u32, |sum, e| sum.saturating_add(e.need.cpus));
            parts.push(format!("{} of {} CPUs free", total.cpus.saturating_sub(taken), total.cpus));
        }
        let mut text = format!("waits for {need}: {}", parts.join(", "));
        if !holders.is_empty() {
            text.push_str(", held by ");
            text.push_str(&name_some(&holders));
        }
        match self.ahead()? {
            0 => {}
            1 => text.push_str("; 1 job ahead"),
            more => text.push_str(&format!("; {more} jobs ahead")),
        }
        Ok(text)
    }

    /// Live entries before this one that want some of the same kind.
    fn ahead(&self) -> Result<usize, LeaseError> {
        let own = self.ticket.queue_name();
        let queue = self.leases.live(&self.leases.queue())?;
        Ok(queue
            .iter()
            .filter(|(name, entry)| *name < own && entry.need.competes(self.ticket.need))
            .count())
    }

    fn gate(&self) -> Result<Option<File>, LeaseError> {
        let path = self.leases.directory.join("gate");
        let file = open_lock(&path)?;
        for _ in 0..GATE_TRIES {
            if let Some(locked) = lock(&file, &path)? {
                return Ok(Some(locked));
            }
            let pause = PollTimeout::try_from(Duration::from_millis(1)).unwrap_or(PollTimeout::ZERO);
            // An interrupted pause is a shorter one.
            drop(poll(&mut [], pause));
        }
        Ok(None)
    }
}

impl Place {
    /// Makes an entry under its final name only once it is locked: another process would take an
    /// unlocked one for stale.
    fn take(directory: &Path, name: &str, entry: &Entry) -> Result<Self, LeaseError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(name);
        let unfinished = directory.join(format!(".{name}.{}.{number}", std::process::id()));
        let mut file = create_readable(&unfinished).map_err(failed("create", &unfinished))?;
        let filled = serde_json::to_vec(entry)
            .map_err(io::Error::from)
            .and_then(|text| file.write_all(&text))
            .and_then(|()| file.try_lock().map_err(io::Error::from))
            .and_then(|()| fs::rename(&unfinished, &path));
        if let Err(source) = filled {
            drop(fs::remove_file(&unfinished));
            return Err(LeaseError::Io { action: "create", path, source });
        }
        Ok(Self { path, _file: file })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Before the lock goes, so that only our own entry is ever removed here. One that stays
        // behind is stale and does no harm.
        drop(fs::remove_file(&self.path));
    }
}

/// The entry, where somebody holds its lock. A stale one is removed where the system permits.
fn live_entry(path: &Path) -> Option<Entry> {
    let mut file = open_plain(path).ok()?;
    let unfinished = path.file_name()?.to_string_lossy().starts_with('.');
    match file.try_lock_shared() {
        Ok(()) => {
            let age = file.metadata().ok()?.modified().ok()?.elapsed().unwrap_or_default();
            // Between its creation and its lock an entry looks stale.
            if !unfinished || age.as_secs() > UNFINISHED_SECONDS {
                drop(fs::remove_file(path));
            }
            None
        }
        Err(TryLockError::WouldBlock) if unfinished => None,
        Err(TryLockError::WouldBlock) => {
            let mut text = Vec::new();
            (&mut file).take(ENTRY_BYTES).read_to_end(&mut text).ok()?;
            serde_json::from_slice(&text).ok()
        }
        Err(TryLockError::Error(_)) => None,
    }
}

/// Locks a description of its own, so that the lock lives as long as what is returned.
fn lock(file: &File, path: &Path) -> Result<Option<File>, LeaseError> {
    match file.try_lock() {
        Ok(()) => file.try_clone().map(Some).map_err(failed("lock", path)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(source)) => {
            Err(LeaseError::Io { action: "lock", path: path.to_path_buf(), source })
        }
    }
}

/// Opens a lock's file, made where it is absent; it is never removed, so all lock the same one.
fn open_lock(path: &Path) -> Result<File, LeaseError> {
    // Without O_CREAT first: the kernel forbids that on another's file in a sticky directory.
    match open_plain(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => match create_readable(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => open_plain(path),
            other => other,
        },
        other => other,
    }
    .map_err(failed("open", path))
}

/// Opens a regular file for reading; follows no link and waits for no pipe. Reading is all that
/// locking takes, so that other users' files serve as well.
fn open_plain(path: &Path) -> io::Result<File> {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(ErrorKind::InvalidInput.into()) }
}

fn create_readable(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).write(true).create_new(true).mode(0o644).open(path)?;
    // Whatever the umask said: other users must be able to open it.
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    Ok(file)
}

/// Makes a directory that everybody may write to and nobody may delete another's file from.
fn make_shared(path: &Path) -> Result<(), LeaseError> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(0o1777))
            .map_err(failed("open to all", path))?,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(source) => {
            return Err(LeaseError::Io { action: "create", path: path.to_path_buf(), source });
        }
    }
    let meta = fs::symlink_metadata(path).map_err(failed("look at", path))?;
    let own = meta.uid() == nix::unistd::geteuid().as_raw();
    let reason = if !meta.is_dir() {
        "it is not a directory"
    } else if own && meta.mode() & 0o1777 == 0o1777 {
        return Ok(());
    } else if own && meta.mode() & 0o022 == 0 {
        // Private: nobody else can meddle, and nobody else takes part.
        return Ok(());
    } else if meta.mode() & 0o1777 != 0o1777 {
        "it is not shared with the sticky bit"
    } else {
        // Another user made it, or root. Its owner could remove locks, and so use a GPU that is
        // leased; but no lock keeps that user from the GPU anyway.
        return Ok(());
    };
    Err(LeaseError::Refused { path: path.to_path_buf(), reason })
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LeaseError {
    move |source| LeaseError::Io { action, path: path.to_path_buf(), source }
}

/// A GPU's name as a file name: MIG instances have slashes.
fn file_name(gpu: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    gpu.chars().take(128).map(plain).collect()
}

fn amount(count: u32, unit: &str) -> String {
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

/// `job ab12cd34` or `jobs ab12cd34, …`, a few of them.
fn name_some(holders: &[Entry]) -> String {
    const SHOWN: usize = 4;
    let mut names: Vec<String> =
        holders.iter().take(SHOWN).map(|entry| entry.job.short()).collect();
    if holders.len() > SHOWN {
        names.push(format!("{} more", holders.len() - SHOWN));
    }
    format!("job{} {}", if holders.len() == 1 { "" } else { "s" }, names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leases(dir: &tempfile::TempDir) -> Leases {
        Leases::open(Some(&dir.path().join("locks"))).unwrap()
    }

    fn stock() -> Stock {
        Stock { gpus: vec![String::from("0"), String::from("GPU-a/1")], cpus: 4 }
    }

    fn ticket(priority: u32, created_ms: u64, gpus: u32, cpus: u32) -> Ticket {
        Ticket {
            job: JobId::generate(),
            user: String::from("ada"),
            priority,
            created_ms,
            need: Need { gpus, cpus },
        }
    }

    fn wait(leases: &Leases, ticket: &Ticket) -> Waiting {
        leases.enqueue(ticket.clone(), stock()).unwrap()
    }

    #[test]
    fn a_job_that_asks_for_nothing_never_waits() {
        let dir = tempfile::tempdir().unwrap();
        let leases = leases(&dir);
        let mut all = wait(&leases, &ticket(50, 1, 2, 4));
        let _held = all.try_acquire().unwrap().unwrap();
        let mut none = wait(&leases, &ticket(0, 2, 0, 0));
        assert!(none.try_acquire().unwrap().unwrap().gpus.is_empty());
        assert_eq!(fs::read_dir(leases.queue()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_held_is_not_given_again_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let leases = leases(&dir);
        let first = ticket(50, 1, 1, 0);
        let held = wait(&leases, &first).try_acquire().unwrap().unwrap();
        assert_eq!(held.gpus, ["0"]);
        let mut second = wait(&leases, &ticket(50, 2, 2, 0));
        assert!(second.try_acquire().unwrap().is_none());
        assert_eq!(
            second.why().unwrap(),
            format!("waits for 2 GPUs: 1 of 2 GPUs free, held by job {}", first.job.short())
        );
        // Nothing was kept of the one GPU that was free.
        drop(held);
        assert_eq!(second.try_acquire().unwrap().unwrap().gpus, ["0", "GPU-a/1"]);
    }

    #[test]
    fn priority_then_order_and_no_backfill() {
        let dir = tempfile::tempdir().unwrap();
        let leases = leases(&dir);
        let mut low = wait(&leases, &ticket(10, 1, 1, 0));
        let mut late = wait(&leases, &ticket(50, 3, 1, 0));
        let mut early = wait(&leases, &ticket(50, 2, 2, 0));
        assert!(low.try_acquire().unwrap().is_none());
        assert!(late.try_acquire().unwrap().is_none());
        assert!(late.why().unwrap().ends_with("2 of 2 GPUs free; 1 job ahead"));
        assert!(low.why().unwrap().ends_with("; 2 jobs ahead"));
        let held = early.try_acquire().unwrap().unwrap();
        assert!(late.try_acquire().unwrap().is_none());
        drop(held);
        assert!(low.try_acquire().unwrap().is_none());
        let _late = late.try_acquire().unwrap().unwrap();
        let _low = low.try_acquire().unwrap().unwrap();
    }

    #[test]
    fn kinds_do_not_wait_for_one_another() {
        let dir = tempfile::tempdir().unwrap();
        let leases = leases(&dir);
        let _gpus = wait(&leases, &ticket(50, 1, 2, 0)).try_acquire().unwrap().unwrap();
        let waiting = wait(&leases, &ticket(50, 2, 1, 0));
        let cpus = wait(&leases, &ticket(0, 3, 0, 3)).try_acquire().unwrap().unwrap();
        assert_eq!(cpus.cpus, [0, 1, 2]);
        let mut more = wait(&leases, &ticket(50, 4, 0, 2));
        assert!(more.try_acquire().unwrap().is_none());
        assert!(more.why().unwrap().starts_with("waits for 2 CPUs: 1 of 4 CPUs free, held by"));
        drop(waiting);
    }

    #[test]
    fn i13_what_can_never_be_given_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let error = leases(&dir).enqueue(ticket(50, 1, 3, 1), stock()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "3 GPUs and 1 CPU asked for, and this machine has 2 GPUs and 4 CPUs"
        );
    }

    #[test]
    fn stale_and_foreign_entries_hold_nobody_up() {
        let dir = tempfile::tempdir().unwrap();
        let leases = leases(&dir);
        let dead = ticket(100, 0, 2, 4);
        let stale = leases.queue().join(dead.queue_name());
        fs::write(&stale, serde_json::to_vec(&dead.entry(Vec::new())).unwrap()).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", leases.queue().join("000-link")).unwrap();
        nix::unistd::mkfifo(&leases.queue().join("000-pipe"), nix::sys::stat::Mode::S_IRWXU)
            .unwrap();
        let garbage = leases.queue().join("000-garbage");
        fs::write(&garbage, "{").unwrap();
        let locked = File::open(&garbage).unwrap();
        locked.lock().unwrap();
        assert!(wait(&leases, &ticket(0, 9, 2, 4)).try_acquire().unwrap().is_some());
        assert!(!stale.exists());
    }

    #[test]
    fn the_kernel_gives_back_what_a_killed_holder_had() {
        let dir = tempfile::tempdir().unwrap();
        let leases = leases(&dir);
        // The child takes the lock's file as its own and says so; flock(1) would do, where present.
        let path = leases.directory().join("gpu-0");
        let file = open_lock(&path).unwrap();
        file.lock().unwrap();
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::from(file))
            .spawn()
            .unwrap();
        let mut both = wait(&leases, &ticket(50, 1, 2, 0));
        assert!(both.try_acquire().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(both.try_acquire().unwrap().is_some());
    }

    #[test]
    fn an_unsafe_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(Leases::open(Some(&open)), Err(LeaseError::Refused { .. })));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert!(matches!(Leases::open(Some(&link)), Err(LeaseError::Refused { .. })));
        let made = leases(&dir);
        assert_eq!(fs::metadata(made.directory()).unwrap().mode() & 0o7777, 0o1777);
    }
}
