//! Who may use which GPU or CPU of this machine: locked files in one directory for all users.
//!
//! The kernel releases a dead holder's locks, so no lease is ever left behind and nobody has to
//! clean up. The locks bind those who ask here; they stop no program from using a GPU. Only what
//! a job asks for is leased, and a job that asks for nothing never touches the directory.
//! Nothing waits in here: callers ask again when the directory changes, and from time to time.

mod files;

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use herd_core::JobId;
use nix::poll::{PollTimeout, poll};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use self::files::{Place, failed, live_entry, lock, make_shared, open_lock};

/// Variable that names another directory.
pub const DIRECTORY_VARIABLE: &str = "HERD_LEASE_DIR";
/// Where the directory is looked for and made, in this order.
const DIRECTORIES: [&str; 2] = ["/run/lock/herd", "/tmp/herd-lock"];
/// Most entries looked at in the queue and among the holders.
const MAX_ENTRIES: usize = 10_000;
/// Tries for the gate, a millisecond apart: it is held for microseconds.
const GATE_TRIES: u32 = 50;
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
        Need {
            gpus: u32::try_from(self.gpus.len()).unwrap_or(u32::MAX),
            cpus: self.cpus,
        }
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
        Ok(Self {
            directory: path.to_path_buf(),
        })
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
            return Err(LeaseError::Never {
                asked: ticket.need,
                present: stock.total(),
            });
        }
        let place = if ticket.need.is_empty() {
            None
        } else {
            let entry = ticket.entry(Vec::new());
            Some(Place::take(&self.queue(), &ticket.queue_name(), &entry)?)
        };
        Ok(Waiting {
            leases: self.clone(),
            ticket,
            stock,
            place,
        })
    }

    fn queue(&self) -> PathBuf {
        self.directory.join("queue")
    }

    fn held(&self) -> PathBuf {
        self.directory.join("held")
    }

    /// Live entries in the order of their names.
    fn live(directory: &Path) -> Result<Vec<(String, Entry)>, LeaseError> {
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
        Entry {
            job: self.job,
            user: self.user.clone(),
            need: self.need,
            gpus,
        }
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
        let Some(_gate) = self.gate()? else {
            return Ok(None);
        };
        if self.ahead()? > 0 {
            return Ok(None);
        }
        let Need {
            gpus: want_gpus,
            cpus: want_cpus,
        } = self.ticket.need;
        let gpu_names = self
            .stock
            .gpus
            .iter()
            .map(|gpu| format!("gpu-{}", file_name(gpu)));
        let gpus = self.leases.lock_free(gpu_names, want_gpus)?;
        if gpus.len() < want_gpus as usize {
            return Ok(None);
        }
        let cpu_names = (0..self.stock.cpus).map(|slot| format!("cpu-{slot}"));
        let cpus = self.leases.lock_free(cpu_names, want_cpus)?;
        if cpus.len() < want_cpus as usize {
            return Ok(None);
        }
        let names: Vec<String> = gpus
            .iter()
            .map(|(at, _)| self.stock.gpus[*at].clone())
            .collect();
        let entry = self.ticket.entry(names.clone());
        // With the process: the next attempt's entry is never removed in place of this one's.
        let name = format!("{}-{}", self.ticket.job, std::process::id());
        let place = Place::take(&self.leases.held(), &name, &entry)?;
        self.place = None;
        Ok(Some(Lease {
            gpus: names,
            cpus: cpus
                .iter()
                .map(|(at, _)| u32::try_from(*at).unwrap_or(u32::MAX))
                .collect(),
            _locks: gpus.into_iter().chain(cpus).map(|(_, file)| file).collect(),
            _place: Some(place),
        }))
    }

    /// One sentence: what this job waits for.
    pub fn why(&self) -> Result<String, LeaseError> {
        let need = self.ticket.need;
        let holders: Vec<Entry> = Leases::live(&self.leases.held())?
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
            parts.push(format!(
                "{} of {} GPUs free",
                total.gpus.saturating_sub(taken),
                total.gpus
            ));
        }
        if need.cpus > 0 {
            let taken = holders
                .iter()
                .fold(0u32, |sum, e| sum.saturating_add(e.need.cpus));
            parts.push(format!(
                "{} of {} CPUs free",
                total.cpus.saturating_sub(taken),
                total.cpus
            ));
        }
        let mut text = format!("waits for {need}: {}", parts.join(", "));
        if !holders.is_empty() {
            text.push_str(", held by ");
            text.push_str(&name_some(&holders));
        }
        Ok(match self.ahead()? {
            0 => text,
            1 => text + "; 1 job ahead",
            more => text + &format!("; {more} jobs ahead"),
        })
    }

    /// Live entries before this one that want some of the same kind.
    fn ahead(&self) -> Result<usize, LeaseError> {
        let own = self.ticket.queue_name();
        let queue = Leases::live(&self.leases.queue())?;
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
            let pause =
                PollTimeout::try_from(Duration::from_millis(1)).unwrap_or(PollTimeout::ZERO);
            // An interrupted pause is a shorter one.
            poll(&mut [], pause).ok();
        }
        Ok(None)
    }
}

/// A GPU's name as a file name: MIG instances have slashes.
fn file_name(gpu: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '-' {
            c
        } else {
            '_'
        }
    };
    gpu.chars().take(128).map(plain).collect()
}

fn amount(count: u32, unit: &str) -> String {
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

/// `job ab12cd34` or `jobs ab12cd34, …`, a few of them.
fn name_some(holders: &[Entry]) -> String {
    const SHOWN: usize = 4;
    let mut names: Vec<String> = holders
        .iter()
        .take(SHOWN)
        .map(|entry| entry.job.short())
        .collect();
    if holders.len() > SHOWN {
        names.push(format!("{} more", holders.len() - SHOWN));
    }
    format!(
        "job{} {}",
        if holders.len() == 1 { "" } else { "s" },
        names.join(", ")
    )
}

#[cfg(test)]
mod tests;
