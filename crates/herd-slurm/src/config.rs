//! The settings of a cluster: `scontrol show config`.

use std::collections::BTreeMap;

use herd_core::units::Span;

use crate::call::Call;
use crate::text::given;
use crate::time::{self, Time};
use crate::version::{Feature, Version};

/// Settings that are kept of one cluster; there are about two hundred.
const MAX_SETTINGS: usize = 2000;

/// Slurm's default of `KillWait`.
const KILL_WAIT: Span = Span::from_secs(30);
/// Slurm's default of `MaxArraySize`.
const MAX_ARRAY_SIZE: u32 = 1001;
/// Slurm's default of `cred_expire`.
const CREDENTIAL: Span = Span::from_secs(120);

/// What to ask.
pub fn call() -> Call {
    Call::new("scontrol", ["show", "config"])
}

/// When the controller answered, on its own clock.
pub fn taken_at(text: &str) -> Option<Time> {
    let first = text.lines().next()?;
    Time::parse(first.strip_prefix("Configuration data as of ")?)
}

/// The settings by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    settings: BTreeMap<String, String>,
}

/// Where `GraceTime` of a preempted job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraceOf {
    /// With its QOS.
    Qos,
    /// With its partition.
    Partition,
}

impl Config {
    /// Reads lines like `KillWait = 30 sec`.
    pub fn parse(text: &str) -> Self {
        let settings = text
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| (name.trim(), value.trim()))
            .filter(|(name, _)| !name.is_empty() && !name.contains(' '))
            .take(MAX_SETTINGS)
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Self { settings }
    }

    /// One setting, unless it is `(null)` or the like.
    pub fn get(&self, name: &str) -> Option<&str> {
        given(self.settings.get(name)?)
    }

    /// `max_array_tasks` of a list like `SchedulerParameters`.
    pub fn parameter(&self, list: &str, name: &str) -> Option<&str> {
        self.get(list)?.split(',').find_map(|entry| {
            let (key, value) = entry.split_once('=').unwrap_or((entry, ""));
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.get(name)?
            .split_ascii_whitespace()
            .next()?
            .parse()
            .ok()
    }

    /// The cluster's name.
    pub fn cluster(&self) -> Option<&str> {
        self.get("ClusterName")
    }

    /// Version of the controller, which may be newer than the commands.
    pub fn version(&self) -> Option<Version> {
        Version::number(self.get("SLURM_VERSION")?)
    }

    /// One above the highest index of an array; 0 where there are no arrays.
    pub fn max_array_size(&self) -> u32 {
        self.number("MaxArraySize").unwrap_or(MAX_ARRAY_SIZE)
    }

    /// Most tasks of one array, where fewer than its size.
    pub fn max_array_tasks(&self) -> Option<u32> {
        self.parameter("SchedulerParameters", "max_array_tasks")?
            .parse()
            .ok()
    }

    /// How long after SIGTERM Slurm kills.
    pub fn kill_wait(&self) -> Span {
        self.get("KillWait")
            .and_then(time::seconds)
            .unwrap_or(KILL_WAIT)
    }

    /// How long ended jobs can be asked for without accounting.
    pub fn min_job_age(&self) -> Option<Span> {
        self.get("MinJobAge").and_then(time::seconds)
    }

    /// How long after its end a requeued job waits at least: until its old credential is void.
    pub fn requeue_wait(&self) -> Span {
        self.parameter("AuthInfo", "cred_expire")
            .and_then(|value| value.parse().ok())
            .map_or(CREDENTIAL, Span::from_secs)
    }

    /// `cgroup`, `linuxproc` or `pgid`: how Slurm finds a step's processes.
    pub fn proctrack(&self) -> Option<&str> {
        let plugin = self.get("ProctrackType")?;
        Some(plugin.strip_prefix("proctrack/").unwrap_or(plugin))
    }

    /// Whether there is a database of ended jobs (`sacct`).
    pub fn accounting(&self) -> bool {
        self.get("AccountingStorageType")
            .is_some_and(|kind| kind.ends_with("/slurmdbd"))
    }

    /// Whether jobs have to have an account that exists.
    pub fn enforces(&self, what: &str) -> bool {
        self.get("AccountingStorageEnforce").is_some_and(|list| {
            list.split(',')
                .any(|entry| entry.eq_ignore_ascii_case(what))
        })
    }

    /// Whether a node's memory is divided among jobs.
    pub fn divides_memory(&self) -> bool {
        self.get("SelectTypeParameters")
            .is_some_and(|list| list.to_ascii_uppercase().contains("MEMORY"))
    }

    /// Whether anything keeps a job within the memory that it was given: a control group, as far as this
    /// shows, or Slurm's own watch. What stands in cgroup.conf is printed at the end of the configuration.
    pub fn bounds_memory(&self) -> bool {
        let has = |key: &str, part: &str| {
            let value = self.get(key).unwrap_or_default().to_ascii_lowercase();
            value.split([',', ' ']).any(|word| word == part)
        };
        let constrained = has("TaskPlugin", "task/cgroup") || has("TaskPlugin", "cgroup");
        (constrained && has("ConstrainRAMSpace", "yes"))
            || has("JobAcctGatherParams", "overmemorykill")
    }

    /// Whether tasks are bound to CPUs, without which `--cpu-bind` only makes `srun` complain.
    pub fn binds_cpus(&self) -> bool {
        self.get("TaskPlugin")
            .is_some_and(|list| list.contains("affinity"))
    }

    /// Whether running jobs are preempted at all.
    pub fn preempts(&self) -> bool {
        self.get("PreemptType")
            .is_some_and(|kind| !kind.ends_with("/none"))
    }

    /// What a preempted job's grace is set for.
    pub fn grace_of(&self) -> Option<GraceOf> {
        match self.get("PreemptType")? {
            "preempt/qos" => Some(GraceOf::Qos),
            "preempt/partition_prio" => Some(GraceOf::Partition),
            _ => None,
        }
    }

    /// Whether a preempted job gets the signal of `--signal` when its grace begins.
    pub fn sends_user_signal(&self, version: Version) -> bool {
        if version.has(Feature::SendUserSignalInPreemptParameters) {
            self.parameter("PreemptParameters", "send_user_signal")
                .is_some()
        } else {
            self.parameter("SlurmctldParameters", "preempt_send_user_signal")
                .is_some()
        }
    }

    /// Most nodes that may have a job, where the site limits it.
    pub fn max_nodes(&self) -> Option<u32> {
        self.number("MaxNodeCount").filter(|most| *most > 0)
    }
}
