//! A reason that is a limit of accounting, and the sentence it comes to.

/// Whose limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The account, or the user in it.
    Association,
    /// The quality of service.
    Qos,
}

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the words say it")]
pub enum Resource {
    Billing,
    BurstBuffer,
    Cpus,
    Energy,
    Gres,
    Jobs,
    Licenses,
    Memory,
    Nodes,
    Submitted,
    Unnamed,
    WallTime,
}

/// How it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Least that a job must ask for.
    AtLeast,
    /// Amount times minutes of one job.
    MinutesPerJob,
    /// Amount times minutes of all jobs, over the accounting period.
    OverTime,
    /// All running jobs of one account.
    PerAccount,
    /// One job.
    PerJob,
    /// One job on one node.
    PerNode,
    /// All running jobs of one user.
    PerUser,
    /// Amount times the minutes that all running jobs may still take.
    Promised,
    /// The same for the jobs of one account.
    PromisedPerAccount,
    /// The same for the jobs of one user.
    PromisedPerUser,
    /// All running jobs together.
    Together,
}

/// One such reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Slurm's word.
    pub code: &'static str,
    /// Whose.
    pub holder: Holder,
    /// Of what.
    pub resource: Resource,
    /// Counted how.
    pub measure: Measure,
}

impl Limit {
    /// What it means, in one sentence without a full stop.
    pub fn meaning(&self) -> String {
        let what = self.resource.words();
        let of = self.holder.words();
        match self.measure {
            Measure::AtLeast => format!("the job asks for less {what} than {of} demands"),
            Measure::PerJob => format!("the job asks for more {what} than {of} allows one job"),
            Measure::PerNode => {
                format!("the job asks for more {what} on a node than {of} allows one job")
            }
            Measure::MinutesPerJob => {
                format!("{what} times time limit of the job are more than {of} allows one job")
            }
            Measure::Together => {
                format!("the running jobs of {of} have all the {what} that its limit allows")
            }
            Measure::OverTime => format!(
                "{of} has used up the {what} times minutes that its limit allows, or this job \
                 would"
            ),
            Measure::Promised => format!(
                "the running jobs of {of} may still take all the {what} times minutes that its \
                 limit allows"
            ),
            Measure::PerUser => {
                format!("your running jobs have all the {what} that {of} allows one user")
            }
            Measure::PerAccount => {
                format!("the account's running jobs have all the {what} that {of} allows it")
            }
            Measure::PromisedPerUser => format!(
                "your running jobs may still take all the {what} times minutes that {of} allows \
                 one user"
            ),
            Measure::PromisedPerAccount => format!(
                "the account's running jobs may still take all the {what} times minutes that \
                 {of} allows it"
            ),
        }
    }

    /// What the user may change.
    pub fn change(&self) -> String {
        let other = self.holder.other();
        let key = self.resource.key();
        match self.measure {
            Measure::AtLeast => format!("raise {key}, or use {other}"),
            Measure::PerJob | Measure::PerNode => format!("lower {key}, or use {other}"),
            Measure::MinutesPerJob => format!("lower {key} or `walltime`, or use {other}"),
            Measure::OverTime => {
                format!("wait for the next period, ask whoever grants it, or use {other}")
            }
            Measure::Together | Measure::PerUser | Measure::PerAccount => {
                format!("wait until some of them have ended, lower {key}, or use {other}")
            }
            Measure::Promised | Measure::PromisedPerUser | Measure::PromisedPerAccount => format!(
                "wait until some of them have ended, lower {key} or `walltime`, or use {other}"
            ),
        }
    }

    /// What the user has to change where the job alone exceeds it.
    pub fn change_of_one_job(&self) -> String {
        format!(
            "lower {}, or use {}",
            self.resource.key(),
            self.holder.other()
        )
    }

    /// Whether waiting alone can never help.
    pub fn is_final(&self) -> bool {
        matches!(
            self.measure,
            Measure::AtLeast | Measure::PerJob | Measure::PerNode | Measure::MinutesPerJob
        )
    }
}

impl Holder {
    fn words(self) -> &'static str {
        match self {
            Self::Association => "the account",
            Self::Qos => "the QOS",
        }
    }

    fn other(self) -> &'static str {
        match self {
            Self::Association => "another account (`slurm.account`)",
            Self::Qos => "another QOS (`slurm.qos`)",
        }
    }
}

impl Resource {
    fn words(self) -> &'static str {
        match self {
            Self::Billing => "billing units",
            Self::BurstBuffer => "burst buffer space",
            Self::Cpus => "CPUs",
            Self::Energy => "energy",
            Self::Gres => "GPUs (or other GRES)",
            Self::Jobs => "jobs",
            Self::Licenses => "licenses",
            Self::Memory => "memory",
            Self::Nodes => "nodes",
            Self::Submitted => "jobs, waiting ones included,",
            Self::Unnamed => "resources of a kind that Slurm does not name",
            Self::WallTime => "time",
        }
    }

    fn key(self) -> &'static str {
        match self {
            Self::Billing | Self::Energy | Self::Unnamed => "`nodes` or `resources`",
            Self::BurstBuffer => "what it asks of the burst buffer",
            Self::Cpus => "`resources.cpus` or `nodes`",
            Self::Gres => "`resources.gpus` or `nodes`",
            Self::Jobs | Self::Submitted => "the number of jobs (an `array` can have a limit)",
            Self::Licenses => "`--licenses` in `slurm.extra`",
            Self::Memory => "`resources.memory` or `nodes`",
            Self::Nodes => "`nodes`",
            Self::WallTime => "`walltime`",
        }
    }
}
