//! A cluster as its commands are reached from here, and what it says of itself.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, SystemTime};

use herd_slurm::accounting::{self, Qos};
use herd_slurm::call::command_keeps;
use herd_slurm::config::{self, Config};
use herd_slurm::facts::{ClusterFacts, Images};
use herd_slurm::{Call, Version, mpi, node, partition, version};
use thiserror::Error;

use super::command::{self, Answer, CommandError};

/// Bound on a call that only asks.
const ASK: Duration = Duration::from_secs(20);
/// Bound on a submission: sites run plug-ins and scripts of theirs in it.
pub(super) const SUBMIT: Duration = Duration::from_mins(1);
/// Bound on taking a file to all nodes.
const CARRY: Duration = Duration::from_mins(10);

/// Why a cluster could not be asked.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// A command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// What a command printed is not what it prints.
    #[error("`{command}` printed something else than was asked for")]
    Output {
        /// Which.
        command: &'static str,
    },
}

/// What a cluster answers when it is asked everything.
#[derive(Debug)]
pub struct Survey {
    /// What it has and can do.
    pub facts: ClusterFacts,
    /// Version of the commands here; that of the controller is in the facts.
    pub commands: Option<Version>,
    /// Whole seconds since the Unix epoch on the controller's clock when it answered.
    pub controller_time: Option<u64>,
    /// When it was asked, and when the answer was there, on our clock.
    pub asked: (SystemTime, SystemTime),
    /// Quality of service, where the cluster has a database; why it did not answer.
    pub database: Option<Result<Vec<Qos>, CommandError>>,
    /// MPI plug-ins of `srun`.
    pub mpi: Vec<String>,
    /// Containers that steps can run in.
    pub images: Images,
}

/// How Slurm's commands are run.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// Which of several clusters with one accounting database.
    pub name: Option<String>,
    /// Whether it has just not answered: then nothing is asked of it.
    pub silent: bool,
}

impl Cluster {
    /// The cluster of this name; the only one where there is none.
    pub fn named(name: Option<String>) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }

    /// Runs a command that only asks, or that may be repeated.
    pub(super) async fn ask(&self, call: Call) -> Result<Answer, CommandError> {
        self.run(call, Vec::new(), ASK).await
    }

    /// The same for one whose failure is an error.
    pub(super) async fn text(&self, call: Call) -> Result<String, CommandError> {
        let program = call.program;
        self.ask(call).await?.success(program)
    }

    /// Does something to a job: hold, release, requeue.
    pub async fn control(&self, call: Call) -> Result<(), CommandError> {
        let name = [&[call.program.to_owned()], call.args.as_slice()]
            .concat()
            .join(" ");
        self.ask(call).await?.success(&name).map(drop)
    }

    /// Runs `sbatch`, which reads `script`.
    pub(super) async fn submit(&self, call: Call, script: String) -> Result<Answer, CommandError> {
        self.run(call, script.into_bytes(), SUBMIT).await
    }

    /// Takes files to nodes: bounded by what travels rather than by Slurm's answer.
    pub(super) async fn carry(&self, call: Call) -> Result<(), CommandError> {
        self.step(call, CARRY).await
    }

    /// Runs a short step on nodes of a job, all of which have to be reached.
    pub(super) async fn reach(&self, call: Call) -> Result<(), CommandError> {
        self.step(call, SUBMIT).await
    }

    async fn step(&self, call: Call, bound: Duration) -> Result<(), CommandError> {
        let program = call.program;
        let answer = self.run(call, Vec::new(), bound).await?;
        answer.success(program).map(drop)
    }

    /// Makes a command of a call, for one whose streams are used while it runs.
    pub(super) fn prepare(&self, command: &mut std::process::Command, call: Call) {
        let call = call.on_cluster(self.name.as_deref());
        let kept = |(name, _): &(OsString, OsString)| name.to_str().is_some_and(command_keeps);
        let env = std::env::vars_os().filter(kept);
        command.args(call.args).env_clear().envs(env);
    }

    async fn run(
        &self,
        call: Call,
        input: Vec<u8>,
        bound: Duration,
    ) -> Result<Answer, CommandError> {
        if self.silent {
            return Err(CommandError::Silent);
        }
        let call = call.on_cluster(self.name.as_deref());
        let argv = std::iter::once(call.program.to_owned()).chain(call.args);
        let kept = |(name, _): &(OsString, OsString)| name.to_str().is_some_and(command_keeps);
        let mut env: Vec<_> = std::env::vars_os().filter(kept).collect();
        env.extend(
            call.env
                .iter()
                .map(|(name, value)| (name.into(), value.into())),
        );
        command::run(argv.map(OsString::from).collect(), env, input, bound).await
    }

    /// What the cluster has and can do.
    pub async fn facts(&self) -> Result<ClusterFacts, ClusterError> {
        // One after the other: together they would only wait for each other's locks in slurmctld.
        let config = Config::parse(&self.text(config::call()).await?);
        let version = config.version().ok_or(ClusterError::Output {
            command: "scontrol show config",
        })?;
        let partitions = partition::parse(&self.text(partition::call()).await?);
        let nodes = node::parse_list(&self.text(node::list_call()).await?);
        Ok(ClusterFacts {
            version,
            config,
            partitions,
            nodes,
            mpi: Vec::new(),
            images: Images::No,
        })
    }

    /// Everything about the cluster that a person may want to check.
    pub async fn survey(&self) -> Result<Survey, ClusterError> {
        let asked = SystemTime::now();
        let text = self.text(config::call()).await?;
        let answered = SystemTime::now();
        let facts = self.facts().await?;
        let commands = self.text(version::call()).await?;
        let database = if facts.config.accounting() {
            let text = self.text(accounting::qos_call()).await;
            Some(text.map(|text| accounting::parse_qos(&text)))
        } else {
            None
        };
        Ok(Survey {
            mpi: self.mpi_plugins().await,
            images: self.images(&facts).await,
            commands: Version::parse(&commands),
            controller_time: config::taken_at(&text).map(|time| time.0),
            asked: (asked, answered),
            database,
            facts,
        })
    }

    /// MPI plug-ins of `srun`; none where it cannot be asked.
    pub async fn mpi_plugins(&self) -> Vec<String> {
        match self.ask(mpi::call()).await {
            Ok(answer) => mpi::parse(&format!("{}{}", answer.out, answer.err)),
            Err(_) => Vec::new(),
        }
    }

    /// Containers that steps can run in; none where `srun` cannot be asked.
    pub async fn images(&self, facts: &ClusterFacts) -> Images {
        let Ok(answer) = self.ask(Images::call()).await else {
            return Images::No;
        };
        match Images::parse(&answer.out, facts.version) {
            Images::Bundles if !has_runtime(facts.config.get("SLURM_CONF")) => Images::No,
            images => images,
        }
    }
}

/// Whether the cluster has a runtime for bundles, as far as its configuration can be seen here: `srun` has
/// the option in any case.
fn has_runtime(configuration: Option<&str>) -> bool {
    let configuration = configuration.map(Path::new).filter(|path| path.is_file());
    configuration.is_none_or(|path| path.with_file_name("oci.conf").is_file())
}
