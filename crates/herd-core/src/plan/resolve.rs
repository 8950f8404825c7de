//! From a job and a backend's facts to a plan, or to every reason why not (I13).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{FORMAT, Plan, PlannedSetup};
use crate::JobId;
use crate::spec::{After, Command, JobSpec, JobType, Launcher, ProcsPerNode, Resources, SetupOn};
use crate::units::Span;
use crate::validate;

/// How long ranks may take to end where the job does not say.
pub const DEFAULT_GRACE: Span = Span::from_secs(10);

/// Priority where the job does not say.
const DEFAULT_PRIORITY: u32 = 50;

/// Characters of a derived name.
const MAX_DERIVED_NAME: usize = 63;

/// What sort of backend it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    /// This machine.
    Local,
    /// A Slurm cluster.
    Slurm,
    /// A Kubernetes cluster with Kueue.
    Kueue,
    /// A Ray cluster.
    Ray,
}

/// What a backend is and can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendFacts {
    /// Its configured name.
    pub name: String,
    /// Its sort.
    pub kind: BackendKind,
    /// Whether ranks start from the executor's own environment.
    pub inherit_env: bool,
    /// Whether shell commands run in a login shell.
    pub login_shell: bool,
    /// Whether nodes see the job directory.
    pub shared_home: bool,
    /// Where setup runs when the job does not say.
    pub setup_on: SetupOn,
    /// GPUs of one node (local: of the machine); absent where unknown.
    pub gpus_per_node: Option<u32>,
    /// CPUs of one node (local: of the machine); absent where unknown.
    pub cpus_per_node: Option<u32>,
    /// Whether a memory limit can be enforced.
    pub memory_enforced: bool,
    /// Most nodes of one job; absent where unknown.
    pub max_nodes: Option<u32>,
    /// Whether it runs containers.
    pub images: bool,
    /// Whether it knows where datasets are.
    pub datasets: bool,
    /// Whether it can ask for checkpoints.
    pub checkpoints: bool,
    /// Whether somebody keeps account of tenants.
    pub tenants: bool,
}

impl BackendFacts {
    /// This machine, with so many CPUs and GPUs.
    pub fn local(cpus: u32, gpus: u32) -> Self {
        Self {
            name: "local".to_owned(),
            kind: BackendKind::Local,
            inherit_env: true,
            login_shell: false,
            shared_home: true,
            setup_on: SetupOn::First,
            gpus_per_node: Some(gpus),
            cpus_per_node: Some(cpus),
            memory_enforced: false,
            max_nodes: None,
            images: false,
            datasets: false,
            checkpoints: false,
            tenants: false,
        }
    }
}

/// What one submission adds to the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// The job.
    pub job: JobId,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Generation, above every earlier one.
    pub generation: u64,
    /// Absolute directory that `workdir` is relative to: the job file's, else the caller's.
    pub cwd: String,
    /// Name of the job file, for jobs whose command has no name.
    pub file_name: Option<String>,
    /// The submitter's variables; only those named in `env_from` are looked at.
    pub env: BTreeMap<String, String>,
    /// `after` with its selectors resolved to full ids; the caller has the index.
    pub after: Vec<After>,
}

impl Submission {
    /// The first attempt of a job, submitted from a directory.
    pub fn first(job: JobId, cwd: impl Into<String>) -> Self {
        Self {
            job,
            attempt: 1,
            generation: 1,
            cwd: cwd.into(),
            file_name: None,
            env: BTreeMap::new(),
            after: Vec::new(),
        }
    }
}

/// A key that the backend cannot honour, or that contradicts another.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize)]
#[error("{key}: {reason}")]
pub struct Unsupported {
    /// The key, as in the job file.
    pub key: String,
    /// Why not.
    pub reason: String,
    /// What to change.
    pub hint: String,
}

/// Resolves a job for one attempt on a backend, or says everything that stands against it.
pub fn plan(
    spec: &JobSpec,
    facts: &BackendFacts,
    submission: Submission,
) -> Result<Plan, Vec<Unsupported>> {
    let refused = refusals(spec, facts);
    if !refused.is_empty() {
        return Err(refused);
    }
    let (procs_per_node, gpus) = procs_and_gpus(spec, facts);
    let herd_starts = spec.job_type == JobType::Pytorch && spec.launcher == Launcher::Herd;
    let mut env = BTreeMap::new();
    if !facts.inherit_env {
        for name in &spec.env_from {
            if let Some(value) = submission.env.get(name) {
                env.insert(name.clone(), value.clone());
            }
        }
    }
    env.extend(spec.env.clone());
    Ok(Plan {
        format: FORMAT,
        job: submission.job,
        name: display_name(spec, submission.file_name.as_deref()),
        attempt: submission.attempt,
        generation: submission.generation,
        backend: facts.name.clone(),
        job_type: spec.job_type,
        launcher: spec.launcher,
        nodes: spec.nodes,
        ranks_per_node: if herd_starts { procs_per_node } else { 1 },
        procs_per_node,
        resources: Resources {
            gpus,
            ..spec.resources.clone()
        },
        walltime: spec.walltime,
        grace: spec
            .checkpoint
            .as_ref()
            .and_then(|c| c.grace)
            .unwrap_or(DEFAULT_GRACE),
        workdir: absolute(&submission.cwd, spec.workdir.as_deref().unwrap_or(".")),
        inherit_env: facts.inherit_env,
        env,
        secret_names: spec.secrets.keys().cloned().collect(),
        setup: spec.setup.as_ref().map(|setup| PlannedSetup {
            run: setup.run.clone(),
            on: setup.on.unwrap_or(facts.setup_on),
        }),
        run: spec.run.clone(),
        login_shell: facts.login_shell,
        checkpoint: spec.checkpoint.clone(),
        retry: spec.retry.clone(),
        array: spec.array.clone(),
        after: submission.after,
        priority: spec.priority.unwrap_or(DEFAULT_PRIORITY),
        shared_home: facts.shared_home,
    })
}

/// What a person should know about a job that is accepted.
pub fn notes(spec: &JobSpec, facts: &BackendFacts, submission: &Submission) -> Vec<String> {
    let mut notes = Vec::new();
    if spec.resources.memory.is_some() && !facts.memory_enforced {
        notes.push(format!(
            "resources.memory is only accounted for on {}: no cgroup is writable there",
            facts.name
        ));
    }
    for name in spec
        .env_from
        .iter()
        .filter(|name| !submission.env.contains_key(*name))
    {
        notes.push(format!(
            "env_from: {name} is not set, so it is not passed on"
        ));
    }
    notes
}

/// Every key that stands in the way.
fn refusals(spec: &JobSpec, facts: &BackendFacts) -> Vec<Unsupported> {
    let mut refused: Vec<Unsupported> = validate::spec(spec)
        .into_iter()
        .map(|conflict| Unsupported {
            key: conflict.key,
            reason: conflict.refusal.message,
            hint: conflict
                .refusal
                .hint
                .unwrap_or_else(|| "change its value".to_owned()),
        })
        .collect();
    let place = &facts.name;
    let mut refuse = |key: &str, reason: String, hint: &str| {
        refused.push(Unsupported {
            key: key.to_owned(),
            reason,
            hint: hint.to_owned(),
        });
    };
    if facts.kind == BackendKind::Ray {
        let reason = "the ray backend is not available yet".to_owned();
        refuse("backend", reason, "use `type: ray` on local");
    }
    if spec.image.is_some() && !facts.images {
        let hint = "remove `image`, or choose a backend that runs containers";
        refuse("image", format!("{place} runs no containers"), hint);
    }
    if !spec.datasets.is_empty() && !facts.datasets {
        let hint = "remove `datasets` and name the data's path in the command";
        refuse(
            "datasets",
            format!("{place} does not know where datasets are"),
            hint,
        );
    }
    if spec.checkpoint.is_some() && !facts.checkpoints {
        let reason = format!("asking for checkpoints is not available yet on {place}");
        refuse(
            "checkpoint",
            reason,
            "remove `checkpoint`; the command may save by itself",
        );
    }
    for (key, value) in [("org", &spec.org), ("project", &spec.project)] {
        if value.is_some() && !facts.tenants {
            let reason = format!("{place} keeps no account of tenants");
            refuse(key, reason, "remove it, or submit through a server");
        }
    }
    if let Some(most) = facts.max_nodes.filter(|most| spec.nodes > *most) {
        refuse(
            "nodes",
            format!("{place} gives at most {most} nodes, not {}", spec.nodes),
            "ask for fewer",
        );
    }
    // Emulated nodes share one machine.
    let sharing = if facts.kind == BackendKind::Local {
        u64::from(spec.nodes)
    } else {
        1
    };
    let mut fits = |key: &str, what: &str, wanted: Option<u32>, most: Option<u32>| {
        let wanted = u64::from(wanted.unwrap_or(0)) * sharing;
        if let Some(most) = most.filter(|most| wanted > u64::from(*most)) {
            let reason = format!("asks for {wanted} {what}, and {place} has {most}");
            let hint = if sharing > 1 {
                "ask for fewer, or for fewer nodes: on one machine they share it"
            } else {
                "ask for fewer"
            };
            refuse(key, reason, hint);
        }
    };
    fits(
        "resources.cpus",
        "CPUs",
        spec.resources.cpus,
        facts.cpus_per_node,
    );
    fits(
        "resources.gpus",
        "GPUs",
        spec.resources.gpus,
        facts.gpus_per_node,
    );
    if spec.procs_per_node == ProcsPerNode::Gpu && procs_and_gpus(spec, facts).0 == 0 {
        let reason =
            format!("is `gpu`, but the number of GPUs per node on {place} is 0 or unknown");
        refuse(
            "procs_per_node",
            reason,
            "set `resources.gpus`, or write a number",
        );
    }
    refused
}

/// Processes per node, and the GPUs per node that go with them.
fn procs_and_gpus(spec: &JobSpec, facts: &BackendFacts) -> (u32, Option<u32>) {
    match spec.procs_per_node {
        ProcsPerNode::Count(count) => (count, spec.resources.gpus),
        ProcsPerNode::Gpu => {
            let sharing = if facts.kind == BackendKind::Local {
                spec.nodes.max(1)
            } else {
                1
            };
            let all = facts.gpus_per_node.map(|gpus| gpus / sharing);
            let gpus = spec.resources.gpus.or(all);
            (gpus.unwrap_or(0), gpus)
        }
    }
}

/// `path` beneath `cwd`, unless it is absolute. `..` is kept: with links it is not the parent.
fn absolute(cwd: &str, path: &str) -> String {
    let mut joined = if path.starts_with('/') {
        String::new()
    } else {
        cwd.to_owned()
    };
    for part in path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
    {
        if !joined.ends_with('/') {
            joined.push('/');
        }
        joined += part;
    }
    if joined.is_empty() {
        "/".to_owned()
    } else {
        joined
    }
}

/// The job's name: its own, else the program's, else the file's, else `job`.
pub fn display_name(spec: &JobSpec, file_name: Option<&str>) -> String {
    if let Some(name) = &spec.name {
        return name.clone();
    }
    let command = spec
        .run
        .as_ref()
        .or_else(|| spec.setup.as_ref().map(|setup| &setup.run));
    let program = command.and_then(program);
    let file = file_name.map(|name| {
        let base = name.rsplit('/').next().unwrap_or(name);
        base.rsplit_once('.').map_or(base, |(stem, _)| stem)
    });
    [program, file]
        .into_iter()
        .flatten()
        .map(sanitised)
        .find(|name| !name.is_empty())
        .unwrap_or_else(|| "job".to_owned())
}

/// The first word of a command that is a program rather than a variable or a comment.
fn program(command: &Command) -> Option<&str> {
    match command {
        Command::Argv(argv) => argv.first().map(String::as_str),
        Command::Shell(text) => text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .flat_map(str::split_whitespace)
            .find(|word| !word.contains('=')),
    }
}

/// The last part of a path, with nothing in it that a name may not have.
fn sanitised(text: &str) -> String {
    let base = text.rsplit('/').find(|part| !part.is_empty()).unwrap_or("");
    let safe: String = base
        .chars()
        .take(MAX_DERIVED_NAME)
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') {
                c
            } else {
                '-'
            }
        })
        .collect();
    safe.trim_matches(['-', '.']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobfile;

    fn spec(text: &str) -> JobSpec {
        jobfile::parse(text.as_bytes(), "job.yaml").unwrap_or_else(|error| panic!("{error}"))
    }

    fn on_local(text: &str) -> Result<Plan, Vec<Unsupported>> {
        plan(
            &spec(text),
            &BackendFacts::local(8, 2),
            Submission::first(JobId::generate(), "/w"),
        )
    }

    fn refused(text: &str) -> Vec<String> {
        on_local(text)
            .unwrap_err()
            .into_iter()
            .map(|refusal| refusal.key)
            .collect()
    }

    #[test]
    fn fills_in_what_the_job_leaves_open() {
        let plan = on_local("run: ./bin/train.sh --fast\nsetup: make\nworkdir: ./sub/.\n").unwrap();
        assert_eq!(plan.name, "train.sh");
        assert_eq!(plan.workdir, "/w/sub");
        assert_eq!(
            (plan.nodes, plan.ranks_per_node, plan.procs_per_node),
            (1, 1, 1)
        );
        assert_eq!(plan.setup.unwrap().on, SetupOn::First);
        assert_eq!((plan.grace, plan.priority), (DEFAULT_GRACE, 50));
    }

    #[test]
    fn ranks_follow_type_and_launcher() {
        let plan = on_local("type: pytorch\nnodes: 2\nprocs_per_node: 3\nrun: a").unwrap();
        assert_eq!((plan.ranks_per_node, plan.world_size()), (3, 6));
        let user = on_local("type: pytorch\nlauncher: user\nprocs_per_node: 3\nrun: a").unwrap();
        assert_eq!((user.ranks_per_node, user.procs_per_node), (1, 3));
        let mpi = on_local("type: mpi\nprocs_per_node: 3\nrun: a").unwrap();
        assert_eq!((mpi.ranks_per_node, mpi.procs_per_node), (1, 3));
        let gpu = on_local("type: pytorch\nnodes: 2\nprocs_per_node: gpu\nrun: a").unwrap();
        assert_eq!((gpu.ranks_per_node, gpu.resources.gpus), (1, Some(1)));
    }

    #[test]
    fn i13_what_local_cannot_honour_is_refused_all_at_once() {
        let keys = refused(
            "run: a\nimage: x:y\ndatasets: [{name: d}]\norg: o\nproject: p\n\
             checkpoint: {protocol: torch-rank}\nnodes: 3\nresources: {cpus: 3, gpus: 1}\n",
        );
        assert_eq!(
            keys,
            [
                "image",
                "datasets",
                "checkpoint",
                "org",
                "project",
                "resources.cpus",
                "resources.gpus"
            ]
        );
        assert_eq!(
            refused("run: a\ntype: pytorch\nnodes: 4\nprocs_per_node: gpu"),
            ["procs_per_node"]
        );
        assert!(on_local("run: a\nslurm: {partition: p}\nkueue: {queue: q}").is_ok());
    }

    #[test]
    fn i13_the_ray_backend_is_refused_with_what_to_do() {
        let facts = BackendFacts {
            kind: BackendKind::Ray,
            ..BackendFacts::local(1, 0)
        };
        let submission = Submission::first(JobId::generate(), "/w");
        let refused = plan(&spec("run: a"), &facts, submission).unwrap_err();
        assert_eq!(refused[0].reason, "the ray backend is not available yet");
        assert_eq!(refused[0].hint, "use `type: ray` on local");
    }

    #[test]
    fn flags_are_checked_like_a_file() {
        let spec = JobSpec {
            nodes: 0,
            name: Some("../x".to_owned()),
            run: Some(Command::Argv(Vec::new())),
            ..JobSpec::default()
        };
        let submission = Submission::first(JobId::generate(), "/w");
        let refused = plan(&spec, &BackendFacts::local(1, 0), submission).unwrap_err();
        let keys: Vec<_> = refused.iter().map(|refusal| refusal.key.as_str()).collect();
        assert_eq!(keys, ["name", "run", "nodes"]);
    }

    #[test]
    fn only_named_variables_reach_a_backend_that_does_not_inherit() {
        let facts = BackendFacts {
            inherit_env: false,
            ..BackendFacts::local(1, 0)
        };
        let spec = spec("run: a\nenv_from: [A, B, C]\nenv: {B: own}");
        let mut submission = Submission::first(JobId::generate(), "/w");
        for (name, value) in [("A", "1"), ("B", "2"), ("X", "3")] {
            submission.env.insert(name.to_owned(), value.to_owned());
        }
        assert_eq!(notes(&spec, &facts, &submission).len(), 1);
        let env = plan(&spec, &facts, submission).unwrap().env;
        let pairs: Vec<_> = env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(pairs, [("A", "1"), ("B", "own")]);
    }

    #[test]
    fn names_come_from_command_file_or_nothing() {
        let name = |text: &str, file| display_name(&spec(text), file);
        assert_eq!(
            name("run: |\n  # hi\n  A=1 /usr/bin/python3 x.py\n", None),
            "python3"
        );
        assert_eq!(name("run: [\"/opt/a b\"]", None), "a-b");
        assert_eq!(name("run: A=1", Some("dir/digits.yaml")), "digits");
        assert_eq!(name("run: \"...\"", None), "job");
        assert_eq!(name("run: a\nname: own", None), "own");
    }

    #[test]
    fn paths_are_joined_without_guessing() {
        assert_eq!(absolute("/w", "."), "/w");
        assert_eq!(absolute("/", "a"), "/a");
        assert_eq!(absolute("/w", "/"), "/");
        assert_eq!(absolute("/w", "../b//c/"), "/w/../b/c");
        assert_eq!(absolute("/w", "/x/./y"), "/x/y");
    }

    #[test]
    fn a_plan_survives_its_file_format() {
        let plan =
            on_local("run: a\nretry: {max: 1, on: [node-lost, 'exit:75']}\narray: 0-9%2").unwrap();
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    }
}
