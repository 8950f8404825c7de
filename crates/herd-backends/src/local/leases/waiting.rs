//! A job in the queue, until it holds what it asked for.

use std::fs::File;
use std::time::Duration;

use nix::poll::{PollTimeout, poll};

use super::files::{Place, is_fresh, lock, open_lock};
use super::{Entry, LeaseError, Leases, Need, Stock, Ticket};

/// Tries for the gate, a millisecond apart: it is held for microseconds.
const GATE_TRIES: u32 = 50;

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

impl Waiting {
    pub(super) fn new(leases: Leases, ticket: Ticket, stock: Stock, place: Option<Place>) -> Self {
        Self {
            leases,
            ticket,
            stock,
            place,
        }
    }

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
        if let Some(place) = &self.place {
            place.refresh();
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
            let inside = self.ticket.inside.as_ref();
            if let Some(outer) = holders.iter().find(|entry| Some(&entry.job) == inside) {
                let outer = outer.job.short();
                text.push_str("; this job runs inside job ");
                text.push_str(&outer);
                text.push_str(", which keeps its own");
            }
        }
        Ok(match self.ahead()? {
            0 => text,
            1 => text + "; 1 job ahead",
            more => text + &format!("; {more} jobs ahead"),
        })
    }

    /// Live entries before this one that want some of the same kind and still look.
    fn ahead(&self) -> Result<usize, LeaseError> {
        let own = self.ticket.queue_name();
        let directory = self.leases.queue();
        let queue = Leases::live(&directory)?;
        Ok(queue
            .iter()
            .filter(|(name, entry)| *name < own && entry.need.competes(self.ticket.need))
            .filter(|(name, _)| is_fresh(&directory.join(name)))
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
