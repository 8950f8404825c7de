//! Who may use which GPU or CPU of this machine: locked files in one directory for all users.
//!
//! The kernel releases a dead holder's locks, so no lease is ever left behind and nobody has to
//! clean up. The locks bind those who ask here; they stop no program from using a GPU. Only what
//! a job asks for is leased, and a job that asks for nothing never touches the directory.
//! Nothing waits in here: callers ask again when the directory changes, and from time to time.

mod files;
mod waiting;

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use herd_core::JobId;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use self::files::{Place, failed, live_entry, lock, make_shared, open_lock};
pub use self::waiting::{Lease, Waiting};

/// Variable that names another directory.
pub const DIRECTORY_VARIABLE: &str = "HERD_LEASE_DIR";
/// Where the directory is looked for and made, in this order.
const DIRECTORIES: [&str; 2] = ["/run/lock/herd", "/tmp/herd-lock"];
/// Most entries looked at in the queue and among the holders.
const MAX_ENTRIES: usize = 10_000;

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
    /// The job that it was handed in from and that waits for it, where there is one.
    pub inside: Option<JobId>,
    /// What it asks for.
    pub need: Need,
}

/// The directory of locks.
#[derive(Clone, Debug)]
pub struct Leases {
    directory: PathBuf,
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
        Ok(Waiting::new(self.clone(), ticket, stock, place))
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

fn amount(count: u32, unit: &str) -> String {
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
