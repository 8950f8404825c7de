//! Every option of `sbatch` and what becomes of it.

/// Whether an option has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// None.
    Flag,
    /// One, in the same word or the next.
    Value,
    /// One, in the same word, or none.
    Optional,
}

/// What becomes of an option.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// It is carried over.
    Read,
    /// It is passed on in `slurm.extra`.
    Extra,
    /// The job gives the same result without it; the reason says so.
    Ignored(&'static str),
    /// The job would be another one without it: why, and what to do.
    Refused(&'static str, &'static str),
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub(super) struct SbatchOption {
    pub(super) name: &'static str,
    pub(super) letter: Option<char>,
    pub(super) form: Form,
    pub(super) fate: Fate,
}

use Fate::{Extra, Ignored, Read, Refused};
use Form::{Flag, Optional, Value};

const fn option(name: &'static str, letter: char, form: Form, fate: Fate) -> SbatchOption {
    SbatchOption {
        name,
        // A space stands for no letter, which keeps the table narrow.
        letter: if letter == ' ' { None } else { Some(letter) },
        form,
        fate,
    }
}

/// What to write instead of a script that starts tasks.
pub(super) const TASKS: &str = "write a job file with `nodes`, `procs_per_node` and `type: mpi` or `pytorch`, whose \
                     `run` is the program that the script starts with srun";
const SHAPE: Fate = Refused("herd starts the tasks itself, one executor a node", TASKS);
const GPU_SHAPE: Fate = Refused(
    "GPUs are asked for by node",
    "use `--gres=gpu:N` or `--gpus-per-node`",
);
const LATER: Fate = Refused(
    "a time to end by cannot be asked for",
    "use `--time`, and `--begin` for a time to start at",
);
const OTHER_USER: Fate = Refused("a job runs as its submitter", "remove it");
const BURST: Fate = Refused(
    "burst buffers are not supported",
    "copy the data in the script",
);
const OWN_OUTPUT: Fate = Ignored("herd keeps the output, and `herd logs` shows it");
const MAIL: Fate = Ignored("herd sends no mail; `herd wait` waits for the end");
const CLIENT: Fate = Ignored("only changes what sbatch prints");
const FREQUENCY: Fate = Refused(
    "the nodes' frequencies and energy cannot be set",
    "remove it",
);
const CONTAINER: Fate = Refused(
    "containers are asked for otherwise",
    "write a job file with `image`",
);

/// Sorted by name.
pub(super) const OPTIONS: &[SbatchOption] = &[
    option("account", 'A', Value, Read),
    option(
        "acctg-freq",
        ' ',
        Value,
        Ignored("only changes what accounting samples"),
    ),
    option("array", 'a', Value, Read),
    option(
        "batch",
        ' ',
        Value,
        Refused("the first node cannot be chosen", "use `--constraint`"),
    ),
    option("bb", ' ', Value, BURST),
    option("bbf", ' ', Value, BURST),
    option("begin", 'b', Value, Extra),
    option("chdir", 'D', Value, Read),
    option(
        "cluster-constraint",
        ' ',
        Value,
        Refused("federations are not supported", "choose a backend"),
    ),
    option(
        "clusters",
        'M',
        Value,
        Refused("a backend is one cluster", "choose it with `--backend`"),
    ),
    option(
        "comment",
        ' ',
        Value,
        Ignored("herd keeps its own id there"),
    ),
    option("constraint", 'C', Value, Extra),
    option("container", ' ', Value, CONTAINER),
    option("container-id", ' ', Value, CONTAINER),
    option("contiguous", ' ', Flag, Extra),
    option(
        "core-spec",
        'S',
        Value,
        Refused("cores cannot be kept for the system", "remove it"),
    ),
    option("cores-per-socket", ' ', Value, Extra),
    option("cpu-freq", ' ', Value, FREQUENCY),
    option("cpus-per-gpu", ' ', Value, GPU_SHAPE),
    option("cpus-per-task", 'c', Value, Read),
    option("deadline", ' ', Value, LATER),
    option(
        "delay-boot",
        ' ',
        Value,
        Ignored("only changes how long Slurm waits for other nodes"),
    ),
    option(
        "dependency",
        'd',
        Value,
        Refused(
            "it names jobs by Slurm's numbers",
            "write a job file with `after`",
        ),
    ),
    option("distribution", 'm', Value, SHAPE),
    option("error", 'e', Value, OWN_OUTPUT),
    option("exclude", 'x', Value, Extra),
    option("exclusive", ' ', Optional, Extra),
    option("export", ' ', Value, Read),
    option(
        "export-file",
        ' ',
        Value,
        Refused(
            "variables cannot be read from a file there",
            "use `herd submit --env-file`",
        ),
    ),
    option(
        "extra",
        ' ',
        Value,
        Refused(
            "free text for site plug-ins cannot be passed on",
            "remove it",
        ),
    ),
    option(
        "extra-node-info",
        'B',
        Value,
        Refused(
            "it is a short form",
            "use `--sockets-per-node`, `--cores-per-socket`, `--threads-per-core`",
        ),
    ),
    option(
        "get-user-env",
        ' ',
        Optional,
        Ignored("jobs have a login environment anyway"),
    ),
    option("gid", ' ', Value, OTHER_USER),
    option("gpu-bind", ' ', Value, GPU_SHAPE),
    option("gpu-freq", ' ', Value, FREQUENCY),
    option("gpus", 'G', Value, Read),
    option("gpus-per-node", ' ', Value, Read),
    option("gpus-per-socket", ' ', Value, GPU_SHAPE),
    option("gpus-per-task", ' ', Value, Read),
    option("gres", ' ', Value, Read),
    option(
        "gres-flags",
        ' ',
        Value,
        Refused(
            "how GPUs and CPUs go together cannot be chosen",
            "remove it",
        ),
    ),
    option("hint", ' ', Value, Extra),
    option("hold", 'H', Flag, Extra),
    option(
        "ignore-pbs",
        ' ',
        Flag,
        Ignored("`#PBS` lines are never read"),
    ),
    option(
        "input",
        'i',
        Value,
        Refused("a job has no standard input", "redirect it in the script"),
    ),
    option("job-name", 'J', Value, Read),
    option(
        "kill-on-invalid-dep",
        ' ',
        Value,
        Ignored("without a dependency it does nothing"),
    ),
    option("licenses", 'L', Value, Extra),
    option("mail-type", ' ', Value, MAIL),
    option("mail-user", ' ', Value, MAIL),
    option(
        "mcs-label",
        ' ',
        Value,
        Refused("security labels cannot be set", "remove it"),
    ),
    option("mem", ' ', Value, Read),
    option("mem-bind", ' ', Value, Extra),
    option("mem-per-cpu", ' ', Value, Read),
    option("mem-per-gpu", ' ', Value, Read),
    option(
        "mincpus",
        ' ',
        Value,
        Refused("CPUs are asked for exactly", "use `--cpus-per-task`"),
    ),
    option(
        "network",
        ' ',
        Value,
        Refused("networks cannot be chosen", "remove it"),
    ),
    option("nice", ' ', Optional, Extra),
    option(
        "no-kill",
        'k',
        Optional,
        Refused(
            "a job ends when it loses a node",
            "remove it; `retry` in a job file tries again",
        ),
    ),
    option(
        "no-requeue",
        ' ',
        Flag,
        Refused("a preempted job is always queued again", "remove it"),
    ),
    option(
        "nodefile",
        'F',
        Value,
        Refused("a file of nodes is not read", "use `--nodelist`"),
    ),
    option("nodelist", 'w', Value, Extra),
    option("nodes", 'N', Value, Read),
    option("ntasks", 'n', Value, Read),
    option("ntasks-per-core", ' ', Value, SHAPE),
    option("ntasks-per-gpu", ' ', Value, SHAPE),
    option("ntasks-per-node", ' ', Value, Read),
    option("ntasks-per-socket", ' ', Value, SHAPE),
    option("open-mode", ' ', Value, OWN_OUTPUT),
    option("output", 'o', Value, OWN_OUTPUT),
    option("overcommit", 'O', Flag, SHAPE),
    option(
        "oversubscribe",
        's',
        Flag,
        Refused("nodes are shared as the partition says", "remove it"),
    ),
    option("parsable", ' ', Flag, CLIENT),
    option("partition", 'p', Value, Read),
    option(
        "prefer",
        ' ',
        Value,
        Refused(
            "features cannot be preferred",
            "demand them with `--constraint`",
        ),
    ),
    option(
        "priority",
        ' ',
        Value,
        Refused(
            "only operators may set it",
            "write a job file with `priority`",
        ),
    ),
    option(
        "profile",
        ' ',
        Value,
        Ignored("only changes what accounting samples"),
    ),
    option(
        "propagate",
        ' ',
        Optional,
        Ignored("limits of the submitting shell are not passed on"),
    ),
    option("qos", 'q', Value, Read),
    option("quiet", 'Q', Flag, CLIENT),
    option(
        "reboot",
        ' ',
        Flag,
        Refused("nodes cannot be rebooted", "remove it"),
    ),
    option(
        "requeue",
        ' ',
        Optional,
        Ignored("a preempted job is always queued again"),
    ),
    option("reservation", ' ', Value, Extra),
    option("resv-ports", ' ', Optional, SHAPE),
    option(
        "segment",
        ' ',
        Value,
        Refused("segments of a topology cannot be asked for", "remove it"),
    ),
    option(
        "signal",
        ' ',
        Value,
        Refused(
            "the notice ahead of an end is herd's own",
            "remove it, and catch SIGTERM: herd sends that to the script and all that it has started \
             ahead of the time limit, by a tenth of it and at most 10 s",
        ),
    ),
    option("sockets-per-node", ' ', Value, Extra),
    option("spread-job", ' ', Flag, SHAPE),
    option(
        "stepmgr",
        ' ',
        Flag,
        Ignored("who manages the steps changes no result"),
    ),
    option("switches", ' ', Value, Extra),
    option(
        "test-only",
        ' ',
        Flag,
        Refused("it submits nothing", "use `herd render`"),
    ),
    option("thread-spec", ' ', Value, Extra),
    option("threads-per-core", ' ', Value, Extra),
    option("time", 't', Value, Read),
    option(
        "time-min",
        ' ',
        Value,
        Refused(
            "a time limit cannot be shortened by the scheduler",
            "remove it",
        ),
    ),
    option("tmp", ' ', Value, Extra),
    option("tres-bind", ' ', Value, SHAPE),
    option("tres-per-task", ' ', Value, SHAPE),
    option("uid", ' ', Value, OTHER_USER),
    option("use-min-nodes", ' ', Flag, SHAPE),
    option("verbose", 'v', Flag, CLIENT),
    option("wait", 'W', Flag, Ignored("use `herd run`, which waits")),
    option(
        "wait-all-nodes",
        ' ',
        Value,
        Ignored("herd waits for all nodes anyway"),
    ),
    option(
        "wckey",
        ' ',
        Value,
        Refused("workload keys cannot be set", "remove it"),
    ),
    option(
        "wrap",
        ' ',
        Value,
        Refused("a script has no `--wrap`", "write the command into it"),
    ),
];
