//! Places to run jobs, by name: this machine, and the clusters that the configuration names.

use std::path::PathBuf;

use herd_backends::slurm::cluster::Cluster;
use herd_core::plan::{BackendFacts, Plan, Unsupported};
use herd_core::spec::{JobSpec, SlurmOptions};
use herd_core::text::error_line;
use herd_slurm::facts::ClusterFacts;
use herd_slurm::refuse;
use herd_slurm::script::Request;

use crate::backend_local;
use crate::backend_login::LoginPlace;
use crate::backend_slurm;
use crate::config::{Backend, Config, SlurmBackend};
use crate::error::Fault;

/// The name of this machine as a backend, which no other may have.
pub(crate) const LOCAL: &str = "local";
/// A Slurm cluster that needs no configuration: the one that this machine's commands talk to.
pub(crate) const SLURM: &str = "slurm";

/// Where a job is to run, and what is known of that place.
#[derive(Debug, Default)]
pub(crate) enum Place {
    /// This machine.
    #[default]
    Local,
    /// A Slurm cluster.
    Slurm(Box<SlurmPlace>),
    /// One behind a login node.
    Login(Box<LoginPlace>),
}

/// A Slurm cluster.
#[derive(Debug)]
pub(crate) struct SlurmPlace {
    /// Its name among the backends.
    pub(crate) name: String,
    /// How it is reached.
    pub(crate) cluster: Cluster,
    /// What it has and can do.
    pub(crate) facts: ClusterFacts,
    /// Where its nodes have room for jobs, in case they do not see the directory for jobs here.
    pub(crate) node_dir: Option<PathBuf>,
}

/// What the configuration says of a cluster; nothing of one that it does not name.
pub(crate) fn configured(name: &str, config: &Config) -> SlurmBackend {
    match config.backends.get(name) {
        Some(Backend::Slurm(slurm)) => slurm.clone(),
        None => SlurmBackend::default(),
    }
}

/// Where nodes have room for jobs that they do not share.
fn node_dir(name: &str, slurm: &SlurmBackend) -> Result<Option<PathBuf>, Fault> {
    let fault = |text: &str| Err(Fault::new(format!("backend {name}: {text}")));
    let shared = slurm.shared_home.unwrap_or(true);
    match &slurm.node_dir {
        Some(_) if shared => fault("`node_dir` is for clusters with `shared_home = false`"),
        Some(path) if !path.is_absolute() => fault("`node_dir` is no absolute path"),
        given => Ok((!shared).then(|| given.clone().unwrap_or_else(|| PathBuf::from("/tmp")))),
    }
}

impl Place {
    /// The place of this name; a cluster is asked what it has. What the configuration says of jobs that
    /// say nothing is put into the job.
    pub(crate) fn open(name: &str, config: &Config, spec: &mut JobSpec) -> Result<Self, Fault> {
        if name == LOCAL {
            return Ok(Self::Local);
        }
        let mut slurm = configured(name, config);
        slurm.node_dir = node_dir(name, &slurm)?;
        let options = spec.slurm.get_or_insert_default();
        for (own, theirs) in [
            (&mut options.partition, &slurm.partition),
            (&mut options.account, &slurm.account),
            (&mut options.qos, &slurm.qos),
        ] {
            if own.is_none() {
                own.clone_from(theirs);
            }
        }
        if let Some(target) = slurm.login() {
            let opened = LoginPlace::open(name, &target, &slurm)?;
            return Ok(Self::Login(Box::new(opened)));
        }
        let cluster = Cluster::named(slurm.cluster);
        let mut facts = backend_slurm::facts(&cluster).map_err(|error| {
            Fault::new(format!("backend {name}: {}", error_line(&error))).hint(format!(
                "`herd doctor -b {name}` looks closer; `-b local` runs the job on this machine"
            ))
        })?;
        if spec.image.is_some() {
            facts.images = backend_slurm::images(&cluster, &facts);
        }
        Ok(Self::Slurm(Box::new(SlurmPlace {
            name: name.to_owned(),
            cluster,
            facts,
            node_dir: slurm.node_dir,
        })))
    }

    /// What planning has to know of it.
    pub(crate) fn facts(&self, spec: &JobSpec) -> BackendFacts {
        match self {
            // The login node judges what its cluster can do.
            Self::Local | Self::Login(_) => backend_local::facts(spec),
            Self::Slurm(slurm) => {
                let partition = spec.slurm.as_ref().and_then(|o| o.partition.as_deref());
                slurm
                    .facts
                    .backend(&slurm.name, partition, slurm.node_dir.is_none())
            }
        }
    }

    /// What stands against a plan besides what planning itself refuses.
    pub(crate) fn refusals(&self, spec: &JobSpec, plan: &Plan) -> Vec<Unsupported> {
        self.with_request(spec, plan, refuse::refusals)
    }

    /// What to know about a job that is accepted.
    pub(crate) fn notes(&self, spec: &JobSpec, plan: &Plan) -> Vec<String> {
        let mut notes = self.with_request(spec, plan, refuse::notes);
        if let (Self::Slurm(_), Some(array)) = (self, &plan.array)
            && !plan.tasks_apart
        {
            let cpus = plan.resources.cpus.unwrap_or(1).saturating_mul(plan.nodes);
            let at_once = array.limit.unwrap_or(cpus);
            notes.push(format!(
                "the tasks are one job of Slurm: {at_once} of them at once share the {} of its \
                 nodes, and `walltime` is that of all together",
                if plan.resources.gpus.is_some_and(|gpus| gpus > 0) {
                    "CPUs and GPUs"
                } else {
                    "CPUs"
                }
            ));
        }
        notes
    }

    fn with_request<T>(
        &self,
        spec: &JobSpec,
        plan: &Plan,
        ask: impl Fn(&Request<'_>, &ClusterFacts) -> Vec<T>,
    ) -> Vec<T> {
        let Self::Slurm(slurm) = self else {
            return Vec::new();
        };
        let none = SlurmOptions::default();
        let request = Request {
            plan,
            options: spec.slurm.as_ref().unwrap_or(&none),
            image: spec.image.as_deref(),
            directory: "/",
            exclude: &[],
            after: &[],
            staged_to: None,
        };
        ask(&request, &slurm.facts)
    }
}
