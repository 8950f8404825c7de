//! The allocation that Slurm gave to a job, as its batch script's environment tells.

use std::ffi::OsString;
use std::fmt;

use herd_core::hostlist;
use herd_slurm::job::Id;
use thiserror::Error;

/// Most nodes of one allocation.
const MAX_NODES: usize = 65_536;

/// What Slurm calls this run of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmRun {
    /// Slurm's number of the job, the same after a requeue.
    pub job: u32,
    /// How often it was requeued before this run.
    pub restarts: u32,
}

impl fmt::Display for SlurmRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slurm:{}.{}", self.job, self.restarts)
    }
}

impl SlurmRun {
    /// From the text of an attempt's `owner`.
    pub fn parse(text: &str) -> Option<Self> {
        let (job, restarts) = text.strip_prefix("slurm:")?.split_once('.')?;
        Some(Self {
            job: job.parse().ok()?,
            restarts: restarts.parse().ok()?,
        })
    }
}

/// An allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Which run of which job.
    pub run: SlurmRun,
    /// The array that the job is a task of, and the index there.
    pub task: Option<Id>,
    /// Names of its nodes, by node index.
    pub nodes: Vec<String>,
    /// The node that the batch script runs on.
    pub own_node: String,
    /// Where slurmctld listens, `host:port`, where Slurm tells.
    pub controller: Option<String>,
}

/// Why this process is in no allocation that a driver could use.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum AllocationError {
    /// A variable is missing.
    #[error("{0} is not set: this is to be started by a batch script of Slurm")]
    Missing(&'static str),
    /// A variable makes no sense.
    #[error("{name} is {value:?}, which cannot be right")]
    Wrong {
        /// Which.
        name: &'static str,
        /// Its value.
        value: String,
    },
}

impl Allocation {
    /// What Slurm's commands call the job. The number alone may be that of the whole array.
    pub fn id(&self) -> Id {
        self.task.unwrap_or_else(|| Id::job(self.run.job))
    }

    /// Reads it.
    pub fn from_environment(
        variable: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Self, AllocationError> {
        let text = |name: &'static str| {
            let value = variable(name).ok_or(AllocationError::Missing(name))?;
            value.into_string().map_err(|value| AllocationError::Wrong {
                name,
                value: value.to_string_lossy().into_owned(),
            })
        };
        let wrong = |name, value: &str| AllocationError::Wrong {
            name,
            value: value.to_owned(),
        };
        let job = text("SLURM_JOB_ID")?;
        let job = job.parse().map_err(|_bad| wrong("SLURM_JOB_ID", &job))?;
        let restarts = match text("SLURM_RESTART_COUNT") {
            Ok(value) => value
                .parse()
                .map_err(|_bad| wrong("SLURM_RESTART_COUNT", &value))?,
            Err(_unset) => 0,
        };
        let list = text("SLURM_JOB_NODELIST")?;
        let nodes = hostlist::expand(&list).unwrap_or_default();
        if nodes.is_empty() || nodes.len() > MAX_NODES {
            return Err(wrong("SLURM_JOB_NODELIST", &list));
        }
        let array = [
            variable("SLURM_ARRAY_JOB_ID"),
            variable("SLURM_ARRAY_TASK_ID"),
        ];
        let number = |value: Option<OsString>| value?.to_str()?.parse().ok();
        let [array, task] = array.map(number);
        Ok(Self {
            run: SlurmRun { job, restarts },
            task: array
                .map(|job| Id { job, task })
                .filter(|id| id.task.is_some()),
            nodes,
            own_node: text("SLURMD_NODENAME")?,
            controller: text("SLURM_WORKING_CLUSTER")
                .ok()
                .and_then(|value| controller(&value)),
        })
    }
}

/// `cluster:host:port:protocol:plugin`.
fn controller(value: &str) -> Option<String> {
    let (_cluster, rest) = value.split_once(':')?;
    let mut fields = rest.rsplitn(3, ':').collect::<Vec<_>>().into_iter().rev();
    let address = fields.next()?;
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    port.parse::<u16>().ok()?;
    (!host.is_empty()).then(|| address.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Allocation, AllocationError> {
        Allocation::from_environment(&|name| {
            let found = pairs.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    const FIRST: [(&str, &str); 4] = [
        ("SLURM_JOB_ID", "42"),
        ("SLURM_JOB_NODELIST", "gpu[08-10,12]"),
        ("SLURMD_NODENAME", "gpu08"),
        ("SLURM_WORKING_CLUSTER", "lab:10.0.0.1:6817:9728:109"),
    ];

    #[test]
    fn nodes_run_and_controller_are_read() {
        let first = read(&FIRST).unwrap();
        assert_eq!(first.nodes, ["gpu08", "gpu09", "gpu10", "gpu12"]);
        assert_eq!(first.run.to_string(), "slurm:42.0");
        assert_eq!(first.id().to_string(), "42");
        assert_eq!(first.controller.as_deref(), Some("10.0.0.1:6817"));
        let again = [&FIRST[..], &[("SLURM_RESTART_COUNT", "2")]].concat();
        let run = read(&again).unwrap().run;
        assert_eq!(SlurmRun::parse(&run.to_string()), Some(run));
    }

    #[test]
    fn a_task_is_never_called_by_the_number_of_its_array() {
        let array = [("SLURM_ARRAY_JOB_ID", "42"), ("SLURM_ARRAY_TASK_ID", "7")];
        let task = read(&[&FIRST[..], &array].concat()).unwrap();
        assert_eq!(task.id().to_string(), "42_7");
        assert_eq!(task.run.to_string(), "slurm:42.0");
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        assert_eq!(
            read(&FIRST[1..]),
            Err(AllocationError::Missing("SLURM_JOB_ID"))
        );
        for (name, value) in [
            ("SLURM_JOB_ID", "4x"),
            ("SLURM_JOB_NODELIST", "n["),
            ("SLURM_RESTART_COUNT", "-1"),
        ] {
            let pairs = [&[(name, value)], &FIRST[..]].concat();
            let error = read(&pairs).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
        assert_eq!(SlurmRun::parse("local:12"), None);
        assert_eq!(controller("lab"), None);
        assert_eq!(
            controller("lab:[fd00::1]:6817:9728:109").as_deref(),
            Some("[fd00::1]:6817")
        );
    }
}
