//! Who a process is beyond its number, and whether it still lives.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// `attempts/<n>/driver.json`: the driver of an attempt and where it listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverInfo {
    /// Process id.
    pub pid: u32,
    /// Start of the process in clock ticks after boot: tells a reused process id apart.
    pub start_ticks: u64,
    /// Host name.
    pub host: String,
    /// The kernel's id of this boot.
    pub boot_id: String,
    /// Inode of the namespace in which `pid` counts; 0 where unknown.
    #[serde(default)]
    pub pid_namespace: u64,
    /// Socket address on which the coordinator listens.
    pub address: String,
}

/// What can be said about a process from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It runs.
    Alive,
    /// It is gone.
    Dead,
    /// It runs, or ran, where this process cannot look. Absence is not death (I3).
    Elsewhere,
}

impl DriverInfo {
    /// The calling process, listening on `address`.
    pub fn of_this_process(address: String) -> Self {
        let pid = std::process::id();
        Self {
            pid,
            start_ticks: process_start(pid).unwrap_or(0),
            host: host_name(),
            boot_id: boot_id(),
            pid_namespace: pid_namespace(),
            address,
        }
    }

    /// What is observed of a driver that is gone.
    pub(crate) fn lost_detail(&self) -> String {
        let Self { pid, host, .. } = self;
        format!("process {pid} on {host} is gone and wrote no end")
    }

    /// Whether the process lives, as far as this host can tell.
    pub fn liveness(&self) -> Liveness {
        if self.host != host_name() {
            return Liveness::Elsewhere;
        }
        if self.boot_id != boot_id() {
            return Liveness::Dead;
        }
        if self.pid_namespace != 0 && self.pid_namespace != pid_namespace() {
            return Liveness::Elsewhere;
        }
        if process_start(self.pid) == Some(self.start_ticks) {
            Liveness::Alive
        } else {
            Liveness::Dead
        }
    }
}

/// This machine's host name.
pub fn host_name() -> String {
    nix::unistd::gethostname().map_or_else(
        |_| String::from("localhost"),
        |name| name.to_string_lossy().into_owned(),
    )
}

fn boot_id() -> String {
    // No process sees two boots.
    static ID: OnceLock<String> = OnceLock::new();
    let read = || {
        fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map_or_else(|_| String::new(), |text| text.trim().to_owned())
    };
    ID.get_or_init(read).clone()
}

fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino())
}

/// Start time of a live process; a zombie is not alive.
fn process_start(pid: u32) -> Option<u64> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(text: &str) -> Option<u64> {
    // The second field is the program's name in parentheses and may itself contain both.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    // Field 22, counted from 1; the state was the third.
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_its_reused_number_is_not() {
        let here = DriverInfo::of_this_process(String::from("127.0.0.1:1"));
        assert_eq!(here.liveness(), Liveness::Alive);
        let reused = DriverInfo {
            start_ticks: here.start_ticks + 1,
            ..here.clone()
        };
        assert_eq!(reused.liveness(), Liveness::Dead);
        let rebooted = DriverInfo {
            boot_id: String::from("before"),
            ..here
        };
        assert_eq!(rebooted.liveness(), Liveness::Dead);
    }

    #[test]
    fn i3_a_driver_on_another_host_or_namespace_is_not_called_dead() {
        let here = DriverInfo::of_this_process(String::new());
        let far = DriverInfo {
            host: String::from("elsewhere"),
            pid: 1,
            ..here.clone()
        };
        assert_eq!(far.liveness(), Liveness::Elsewhere);
        let boxed = DriverInfo {
            pid_namespace: 1,
            start_ticks: 0,
            ..here
        };
        assert_eq!(boxed.liveness(), Liveness::Elsewhere);
    }

    #[test]
    fn stat_survives_a_program_name_with_parentheses_and_spaces() {
        let stat = "7 (a) R (b) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0";
        assert_eq!(parse_stat(stat), Some(4242));
        assert_eq!(parse_stat(&stat.replace(") S", ") Z")), None);
        assert_eq!(parse_stat("nonsense"), None);
    }
}
