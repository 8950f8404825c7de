//! Every key of a job file, once: the parser, the hints and the JSON schema read this table.

/// Bounds of `nodes`.
pub const NODES: (u32, u32) = (1, 100_000);
/// Bounds of `procs_per_node`.
pub const PROCS: (u32, u32) = (1, 4096);
/// Bounds of `resources.cpus`.
pub const CPUS: (u32, u32) = (1, 100_000);
/// Bounds of `resources.gpus`.
pub const GPUS: (u32, u32) = (0, 4096);
/// Bounds of `priority`.
pub const PRIORITY: (u32, u32) = (0, 100);
/// Bounds of `retry.max`.
pub const RETRIES: (u32, u32) = (0, 1000);

/// One key.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What it means, one sentence.
    pub doc: &'static str,
    /// What its value looks like.
    pub shape: Shape,
    /// Whether its mapping is incomplete without it.
    pub required: bool,
}

/// What a value looks like.
#[derive(Debug)]
pub enum Shape {
    /// Text; numbers and booleans count as their source text.
    Text,
    /// A whole number within bounds.
    Integer((u32, u32)),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `90m`, `1-02:00:00`.
    Duration,
    /// `32GiB`.
    Size,
    /// `80%` or 80.
    Percent,
    /// A list.
    List(&'static Self),
    /// A mapping with these keys.
    Object(&'static [Key]),
    /// A mapping with free keys.
    Map(&'static Self),
    /// Any one of these.
    OneOf(&'static [Self]),
}

const fn key(name: &'static str, shape: Shape, doc: &'static str) -> Key {
    Key {
        name,
        doc,
        shape,
        required: false,
    }
}

const fn required(name: &'static str, shape: Shape, doc: &'static str) -> Key {
    Key {
        name,
        doc,
        shape,
        required: true,
    }
}

/// A command: text for a shell, or an argument vector.
pub const COMMAND: Shape = Shape::OneOf(&[Shape::Text, Shape::List(&Shape::Text)]);

/// The keys of a job file.
pub const JOB: &[Key] = &[
    key(
        "name",
        Shape::Text,
        "Name shown to people; that of the file or the program where absent.",
    ),
    key(
        "type",
        Shape::Choice(&["command", "pytorch", "mpi", "ray"]),
        "How ranks start: one process per node, torch ranks, MPI ranks, or a Ray cluster.",
    ),
    key(
        "nodes",
        Shape::Integer(NODES),
        "Number of nodes; 1 where absent.",
    ),
    key(
        "procs_per_node",
        Shape::OneOf(&[Shape::Integer(PROCS), Shape::Choice(&["gpu"])]),
        "Ranks per node, or `gpu` for one per GPU.",
    ),
    key(
        "launcher",
        Shape::Choice(&["herd", "user"]),
        "Who starts the ranks of a pytorch job: herd, or the command itself (torchrun).",
    ),
    key(
        "resources",
        Shape::Object(RESOURCES),
        "What each node needs.",
    ),
    key(
        "walltime",
        Shape::Duration,
        "Time limit of each attempt: setup, run and grace together.",
    ),
    key(
        "image",
        Shape::Text,
        "Container image, where the backend runs containers.",
    ),
    key(
        "workdir",
        Shape::Text,
        "Directory the job runs in, relative to the job file.",
    ),
    key(
        "env",
        Shape::Map(&Shape::Text),
        "Variables for every phase and rank.",
    ),
    key(
        "env_from",
        Shape::List(&Shape::Text),
        "Names of your own variables to pass on.",
    ),
    key(
        "secrets",
        Shape::Map(&Shape::Object(SECRET)),
        "Variables with secret values, read from a variable or a file at submission.",
    ),
    key(
        "setup",
        Shape::OneOf(&[Shape::Text, Shape::List(&Shape::Text), Shape::Object(SETUP)]),
        "What runs on nodes before any rank.",
    ),
    key(
        "run",
        COMMAND,
        "What ranks run: text for bash, or a list of arguments.",
    ),
    key(
        "datasets",
        Shape::List(&Shape::Object(DATASET)),
        "Named data the job reads.",
    ),
    key(
        "checkpoint",
        Shape::Object(CHECKPOINT),
        "How the job saves and resumes its state.",
    ),
    key(
        "retry",
        Shape::Object(RETRY),
        "Which failures are tried again, and how often.",
    ),
    key(
        "array",
        Shape::OneOf(&[Shape::Text, Shape::List(&Shape::Integer((0, u32::MAX)))]),
        "Task indices, like `0-99%10` or `1,3,5-9:2`.",
    ),
    key(
        "after",
        Shape::List(&Shape::OneOf(&[Shape::Text, Shape::Object(AFTER)])),
        "Jobs that must end before this one starts.",
    ),
    key("org", Shape::Text, "Tenant the job is counted for."),
    key("project", Shape::Text, "Project within the tenant."),
    key(
        "priority",
        Shape::Integer(PRIORITY),
        "0 to 100, higher first; 50 where absent.",
    ),
    key("backend", Shape::Text, "Backend's name, or `auto`."),
    key(
        "slurm",
        Shape::Object(SLURM),
        "Settings that only Slurm reads.",
    ),
    key(
        "kueue",
        Shape::Object(KUEUE),
        "Settings that only Kueue reads.",
    ),
];

/// The keys of `resources`.
pub const RESOURCES: &[Key] = &[
    key("cpus", Shape::Integer(CPUS), "CPUs per node."),
    key("memory", Shape::Size, "Memory per node, like `32GiB`."),
    key("gpus", Shape::Integer(GPUS), "GPUs per node."),
    key(
        "gpu_type",
        Shape::Text,
        "GPU model, as the backend names it.",
    ),
];

/// The keys of one secret.
pub const SECRET: &[Key] = &[
    key(
        "env",
        Shape::Text,
        "Variable of your own environment that holds the value.",
    ),
    key("file", Shape::Text, "File that holds the value."),
];

/// The keys of `setup`.
pub const SETUP: &[Key] = &[
    required("run", COMMAND, "The command."),
    key(
        "on",
        Shape::Choice(&["first", "each"]),
        "Node 0 alone, or every node.",
    ),
];

/// The keys of one dataset.
pub const DATASET: &[Key] = &[
    required("name", Shape::Text, "Registered name."),
    key(
        "mode",
        Shape::Choice(&["required", "preferred"]),
        "Whether only nodes that have it will do.",
    ),
    key(
        "mount",
        Shape::Text,
        "Absolute directory where the job sees it.",
    ),
    key(
        "min_cached",
        Shape::Percent,
        "Share that must be cached before a node counts as near.",
    ),
];

/// The keys of `checkpoint`.
pub const CHECKPOINT: &[Key] = &[
    required(
        "protocol",
        Shape::Text,
        "Name of the checkpoint format, like `torch-rank`.",
    ),
    key("dir", Shape::Text, "Directory with checkpoints."),
    key(
        "signal",
        Shape::Text,
        "Signal that asks for one, like `SIGUSR1`.",
    ),
    key("grace", Shape::Duration, "How long one may take."),
    key("interval", Shape::Duration, "How often one is asked for."),
    key("expected_size", Shape::Size, "About how large one is."),
];

/// The keys of `retry`.
pub const RETRY: &[Key] = &[
    required(
        "max",
        Shape::Integer(RETRIES),
        "Retries after the first attempt.",
    ),
    key(
        "on",
        Shape::List(&Shape::Text),
        "Failures that count: `node-lost`, `rank-failed`, `exit:75` and so on; lost nodes and \
         drivers where absent.",
    ),
    key(
        "backoff",
        Shape::Duration,
        "Pause before the next attempt, doubled each time.",
    ),
];

/// The keys of one entry of `after`.
pub const AFTER: &[Key] = &[
    required(
        "job",
        Shape::Text,
        "The job: its id, the end of its id, or its name.",
    ),
    key(
        "when",
        Shape::Choice(&["ok", "failed", "any"]),
        "Which end counts; `ok` where absent.",
    ),
];

/// The keys of `slurm`.
pub const SLURM: &[Key] = &[
    key("partition", Shape::Text, "Partition."),
    key("qos", Shape::Text, "Quality of service."),
    key("account", Shape::Text, "Account."),
    key(
        "extra",
        Shape::List(&Shape::Text),
        "Further options of sbatch, from an allow-list.",
    ),
    key(
        "allocation",
        Shape::Choice(&["task", "job"]),
        "Of an array: one for each `task`, or one for the `job`, which is quicker for many short tasks; `task` where absent.",
    ),
    key(
        "environment",
        Shape::Choice(&["rank", "script"]),
        "Slurm's variables: those that a `rank` needs, or all that `sbatch` gives a batch `script`, for a command of one node that calls `srun` itself; `rank` where absent.",
    ),
];

/// The keys of `kueue`.
pub const KUEUE: &[Key] = &[
    key("namespace", Shape::Text, "Namespace."),
    key("queue", Shape::Text, "Local queue."),
    key("priority_class", Shape::Text, "Priority class."),
];
