//! Rules that hold for a job however it was written: file, flags or API.
//!
//! Each rule looks at one value, or at keys that must agree; none knows a backend.

use serde::Serialize;

use crate::JobId;
use crate::spec::{
    Command, JobSpec, JobType, Launcher, ProcsPerNode, SecretSource, SlurmEnvironment,
};
use crate::text::quoted;
use crate::units::Bytes;

/// Characters of a job name, and of other names.
const MAX_NAME: usize = 253;

/// Characters of a short id.
const SHORT_ID: usize = 8;

/// Bytes of one environment value; the kernel refuses 128 KiB and more for one string.
const MAX_ENV_VALUE: usize = 128 * 1024 - 1;
/// Most bytes of a script.
const MAX_SCRIPT: usize = 1024 * 1024;

/// Least memory of a node that a job may ask for.
const MIN_MEMORY: Bytes = Bytes(16 << 20);

/// Options of sbatch that a job may add; everything that could bypass a quota or another key of
/// the job file is absent.
pub const SLURM_EXTRA: &[&str] = &[
    "begin",
    "comment",
    "constraint",
    "contiguous",
    "cores-per-socket",
    "exclude",
    "exclusive",
    "hint",
    "hold",
    "licenses",
    "mem-bind",
    "nice",
    "nodelist",
    "reservation",
    "sockets-per-node",
    "switches",
    "thread-spec",
    "threads-per-core",
    "tmp",
];

/// Variables that herd sets in a Ray job: which cluster it is, and how it is entered.
const RAY_OWN: &[&str] = &[
    "RAY_ADDRESS",
    "RAY_AUTH_MODE",
    "RAY_AUTH_TOKEN",
    "RAY_AUTH_TOKEN_PATH",
];

/// Why a value is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Refusal {
    /// A refusal without advice.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
        }
    }

    /// The same refusal with advice.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// A name of a job, backend, tenant, partition and so on.
pub fn name(text: &str) -> Result<(), Refusal> {
    no_control(text)?;
    let length = text.chars().count();
    if text.is_empty() {
        return Err(Refusal::new("must not be empty"));
    }
    if length > MAX_NAME {
        return Err(Refusal::new(format!(
            "has {length} characters; {MAX_NAME} is the limit"
        )));
    }
    if text.contains('/') {
        return Err(Refusal::new("must not contain `/`"));
    }
    if text == "." || text == ".." {
        return Err(Refusal::new(format!("must not be {}", quoted(text))));
    }
    if text.starts_with('-') {
        return Err(Refusal::new(
            "must not start with `-`: it would read as a flag",
        ));
    }
    if text.trim() != text {
        return Err(Refusal::new("must not start or end with a space"));
    }
    Ok(())
}

/// A name for a job: one by which the job can be chosen afterwards.
pub fn job_name(text: &str) -> Result<(), Refusal> {
    name(text)?;
    let hint = format!("choose another, such as `job-{text}`");
    if text == "last" {
        let message = "`last` stands for the newest job wherever a job is chosen";
        return Err(Refusal::new(message).with_hint(hint));
    }
    let short = text.len() == SHORT_ID && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if short || text.parse::<JobId>().is_ok() {
        return Err(Refusal::new("looks like the id of a job").with_hint(hint));
    }
    Ok(())
}

/// A name of registered data, which may have `/` between its parts.
pub fn dataset_name(text: &str) -> Result<(), Refusal> {
    if text.chars().count() > MAX_NAME {
        return name(text);
    }
    text.split('/').try_for_each(name)
}

/// Text without control characters, which could change what a terminal or a script reads.
pub fn no_control(text: &str) -> Result<(), Refusal> {
    if text.chars().any(char::is_control) {
        return Err(Refusal::new(
            "must not contain control characters or line breaks",
        ));
    }
    Ok(())
}

/// A path that herd hands on.
pub fn path(text: &str) -> Result<(), Refusal> {
    no_control(text)?;
    if text.is_empty() {
        return Err(Refusal::new("must not be empty"));
    }
    if text == "~" || text.starts_with("~/") {
        return Err(Refusal::new("`~` is not expanded here").with_hint("write the whole path"));
    }
    Ok(())
}

/// Memory of a node. Less than this leaves nothing for what herd itself runs there, which the
/// kernel would end first.
pub fn memory(size: Bytes) -> Result<(), Refusal> {
    if size < MIN_MEMORY {
        let least = MIN_MEMORY.approximate();
        return Err(
            Refusal::new(format!("is less than {least} for a node")).with_hint(format!(
                "ask for at least {least}; `M` means MiB, `G` means GiB"
            )),
        );
    }
    Ok(())
}

/// A container image.
pub fn image(text: &str) -> Result<(), Refusal> {
    no_control(text)?;
    if text.is_empty() || text.contains(char::is_whitespace) || text.len() > 1024 {
        return Err(Refusal::new("is not an image like `registry/name:tag`"));
    }
    Ok(())
}

/// The name of a variable that a job sets.
pub fn env_name(text: &str) -> Result<(), Refusal> {
    let mut bytes = text.bytes();
    let first = bytes
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    if !first || !bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(Refusal::new("is not the name of a variable")
            .with_hint("use letters, digits and `_`, and no digit at the start"));
    }
    for prefix in ["HERD_", "SKYPILOT_"] {
        if text.starts_with(prefix) {
            let message = format!("names that start with `{prefix}` are set by herd itself");
            return Err(Refusal::new(message).with_hint("choose another name"));
        }
    }
    Ok(())
}

/// The value of a variable.
pub fn env_value(text: &str) -> Result<(), Refusal> {
    if text.contains('\0') {
        return Err(Refusal::new("must not contain a NUL character"));
    }
    if text.len() > MAX_ENV_VALUE {
        return Err(Refusal::new(
            "is longer than 128 KiB, which no program can be given",
        ));
    }
    Ok(())
}

/// A command of a phase.
pub fn command(command: &Command) -> Result<(), Refusal> {
    let (empty, nul) = match command {
        Command::Shell(text) => (text.trim().is_empty(), text.contains('\0')),
        Command::Argv(argv) => (
            argv.first().is_none_or(String::is_empty),
            argv.iter().any(|word| word.contains('\0')),
        ),
    };
    if empty {
        return Err(Refusal::new("has no command"));
    }
    if nul {
        return Err(Refusal::new("must not contain a NUL character"));
    }
    let longest = match command {
        // The shell is given a long script in pieces.
        Command::Shell(text) if text.len() > MAX_SCRIPT => {
            return Err(Refusal::new("is longer than 1 MiB")
                .with_hint("put it into a file, and give the file's name"));
        }
        Command::Shell(_) => 0,
        Command::Argv(argv) => argv.iter().map(String::len).max().unwrap_or(0),
    };
    if longest > MAX_ENV_VALUE {
        return Err(Refusal::new(
            "has an argument of more than 128 KiB, which no program can be given",
        )
        .with_hint("put it into a file, and give the file's name"));
    }
    Ok(())
}

/// One option of `slurm.extra`: allow-listed, in one word.
pub fn slurm_extra(text: &str) -> Result<(), Refusal> {
    no_control(text)?;
    let hint = || format!("allowed are {}", SLURM_EXTRA.join(", "));
    let Some(option) = text.strip_prefix("--") else {
        return Err(Refusal::new("is not an option like `--constraint=ib`").with_hint(hint()));
    };
    let option = option.split('=').next().unwrap_or(option);
    if option.is_empty() || option.contains(char::is_whitespace) {
        return Err(Refusal::new("is not an option like `--constraint=ib`").with_hint(hint()));
    }
    if SLURM_EXTRA.contains(&option) {
        return Ok(());
    }
    let own = match option {
        "account" => Some("use `slurm.account`"),
        "partition" => Some("use `slurm.partition`"),
        "qos" => Some("use `slurm.qos`"),
        "job-name" => Some("use `name`"),
        "gres" | "gpus" | "gpus-per-node" | "gpus-per-task" => Some("use `resources.gpus`"),
        "time" => Some("use `walltime`"),
        "nodes" => Some("use `nodes`"),
        "mem" | "mem-per-cpu" | "mem-per-gpu" => Some("use `resources.memory`"),
        "cpus-per-task" | "ntasks" | "ntasks-per-node" => Some("use `resources.cpus`"),
        "array" => Some("use `array`"),
        "dependency" => Some("use `after`"),
        "chdir" => Some("use `workdir`"),
        "priority" => Some("use `priority`"),
        _ => None,
    };
    let refusal = Refusal::new(format!("the option {} is not allowed", quoted(option)));
    Err(match own {
        Some(own) => refusal.with_hint(own),
        None => refusal.with_hint(hint()),
    })
}

/// Two keys that do not go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The key to change, as in the job file.
    pub key: String,
    /// What is wrong and what to do.
    pub refusal: Refusal,
}

/// Keys of one job that contradict one another.
pub fn conflicts(spec: &JobSpec) -> Vec<Conflict> {
    let mut found = Vec::new();
    let mut say = |key: &str, message: &str, hint: &str| {
        let refusal = Refusal::new(message).with_hint(hint);
        found.push(Conflict {
            key: key.to_owned(),
            refusal,
        });
    };
    // An array without a command says so itself.
    if spec.run.is_none() && spec.setup.is_none() && spec.array.is_none() {
        say("run", "the job has nothing to run", "add `run: COMMAND`");
    }
    if spec.launcher == Launcher::User && spec.job_type != JobType::Pytorch {
        say(
            "launcher",
            "needs `type: pytorch`",
            "remove it, or set `type: pytorch`",
        );
    }
    let one_process = match spec.job_type {
        JobType::Command => Some("a command starts one process per node"),
        JobType::Ray => Some("a Ray job starts its own workers"),
        JobType::Pytorch | JobType::Mpi => None,
    };
    if let Some(why) = one_process {
        if spec.procs_per_node != ProcsPerNode::Count(1) {
            let message = format!("needs `type: pytorch` or `type: mpi`: {why}");
            say("procs_per_node", &message, "remove it, or set the type");
        }
    }
    let script = spec
        .slurm
        .as_ref()
        .is_some_and(|slurm| slurm.environment == SlurmEnvironment::Script);
    if script && (spec.job_type != JobType::Command || spec.nodes > 1) {
        say(
            "slurm.environment",
            "`script` is for a command of one node, as sbatch runs a batch script",
            "remove it: ranks have the variables that tell of the job",
        );
    }
    if spec.array.is_some() {
        if spec.job_type != JobType::Command {
            say(
                "array",
                "needs `type: command`",
                "submit one job per index, or remove the type",
            );
        }
        if spec.run.is_none() {
            say(
                "array",
                "has no command for its tasks",
                "add `run: COMMAND`",
            );
        }
    }
    if spec.job_type == JobType::Ray {
        for variable in RAY_OWN {
            let places = [
                ("env", spec.env.contains_key(*variable)),
                ("secrets", spec.secrets.contains_key(*variable)),
            ];
            for (place, _) in places.into_iter().filter(|(_, set)| *set) {
                say(
                    &format!("{place}.{variable}"),
                    "is set by herd itself in a Ray job, for the cluster it starts",
                    "remove it; to use a cluster of your own, set `type: command`",
                );
            }
        }
    }
    for variable in spec
        .secrets
        .keys()
        .filter(|variable| spec.env.contains_key(*variable))
    {
        let key = format!("secrets.{variable}");
        say(&key, "is set in `env` too", "remove it from `env`");
    }
    found
}

/// The keys besides itself that a fault of a key hangs on: of those below, and of what a backend
/// has against a job.
pub(crate) fn parties(key: &str) -> &'static [&'static str] {
    match key.split('.').next().unwrap_or(key) {
        "run" => &["setup", "type", "launcher"],
        "launcher" => &["type"],
        "procs_per_node" => &["type", "nodes", "resources.gpus"],
        "array" => &["type", "run"],
        "resources" => &["nodes"],
        "secrets" => &["env", "type"],
        "env" => &["type"],
        _ => &[],
    }
}

/// Every rule for one job; what the flags of a command line made is checked like a file.
pub fn spec(spec: &JobSpec) -> Vec<Conflict> {
    let mut found = Vec::new();
    let mut check = |key: String, result: Result<(), Refusal>| {
        if let Err(refusal) = result {
            found.push(Conflict { key, refusal });
        }
    };
    for (key, text) in [
        ("org", &spec.org),
        ("project", &spec.project),
        ("backend", &spec.backend),
        ("resources.gpu_type", &spec.resources.gpu_type),
    ] {
        check(key.to_owned(), text.as_deref().map_or(Ok(()), name));
    }
    check(
        "name".to_owned(),
        spec.name.as_deref().map_or(Ok(()), job_name),
    );
    check(
        "workdir".to_owned(),
        spec.workdir.as_deref().map_or(Ok(()), path),
    );
    check(
        "image".to_owned(),
        spec.image.as_deref().map_or(Ok(()), image),
    );
    for (variable, value) in &spec.env {
        check(
            format!("env.{variable}"),
            env_name(variable).and_then(|()| env_value(value)),
        );
    }
    for variable in &spec.env_from {
        check("env_from".to_owned(), env_name(variable));
    }
    for (variable, source) in &spec.secrets {
        let source = match source {
            SecretSource::Env(name) if name.is_empty() || name.contains(['=', '\0']) => {
                Err(Refusal::new("names no variable"))
            }
            SecretSource::Env(_) => Ok(()),
            SecretSource::File(file) => path(file),
        };
        check(
            format!("secrets.{variable}"),
            env_name(variable).and(source),
        );
    }
    if let Some(setup) = &spec.setup {
        check("setup".to_owned(), command(&setup.run));
    }
    if let Some(run) = &spec.run {
        check("run".to_owned(), command(run));
    }
    for option in spec.slurm.iter().flat_map(|slurm| &slurm.extra) {
        check("slurm.extra".to_owned(), slurm_extra(option));
    }
    for (key, value, range) in [
        ("nodes", Some(spec.nodes), crate::jobfile::keys::NODES),
        (
            "resources.cpus",
            spec.resources.cpus,
            crate::jobfile::keys::CPUS,
        ),
        (
            "resources.gpus",
            spec.resources.gpus,
            crate::jobfile::keys::GPUS,
        ),
        ("priority", spec.priority, crate::jobfile::keys::PRIORITY),
        (
            "retry.max",
            spec.retry.as_ref().map(|retry| retry.max),
            crate::jobfile::keys::RETRIES,
        ),
    ] {
        check(
            key.to_owned(),
            value.map_or(Ok(()), |value| in_range(value, range)),
        );
    }
    check(
        "resources.memory".to_owned(),
        spec.resources.memory.map_or(Ok(()), memory),
    );
    if let ProcsPerNode::Count(count) = spec.procs_per_node {
        check(
            "procs_per_node".to_owned(),
            in_range(count, crate::jobfile::keys::PROCS),
        );
    }
    if spec.walltime.is_some_and(|walltime| walltime.ms == 0) {
        check(
            "walltime".to_owned(),
            Err(Refusal::new("must be longer than nothing")),
        );
    }
    found.extend(conflicts(spec));
    found
}

/// A number between the bounds of its key.
pub fn in_range(value: u32, (least, most): (u32, u32)) -> Result<(), Refusal> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Refusal::new(format!(
        "must be between {least} and {most}, not {value}"
    )))
}

#[cfg(test)]
mod tests;
