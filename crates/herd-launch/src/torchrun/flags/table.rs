//! Every flag: its spelling, what it takes, and its line of help.

/// What a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// Nothing. Its variable is 0 or 1.
    Nothing,
    /// A value, named so in the help.
    Value(&'static str),
    /// One of these words.
    OneOf(&'static [&'static str]),
}

/// Where the help shows a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// How many workers on how many nodes.
    Size,
    /// How nodes find each other.
    Rendezvous,
    /// What a worker runs.
    Program,
    /// Failures, signals and the end.
    Supervision,
    /// Files and the console.
    Output,
    /// Not in torchrun.
    Ours,
    /// Help and completion.
    About,
}

impl Group {
    /// All, in the order of the help, with their titles.
    pub(super) const ALL: &'static [(Self, &'static str)] = &[
        (Self::Size, "Workers and nodes"),
        (Self::Rendezvous, "Rendezvous"),
        (Self::Program, "What each worker runs"),
        (Self::Supervision, "Supervision"),
        (Self::Output, "Output"),
        (Self::Ours, "Beyond torchrun"),
        (Self::About, "About"),
    ];
}

/// One flag.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flag {
    /// Its dashed spelling without the two dashes. The underscored one is accepted too.
    pub(super) name: &'static str,
    /// Its letter.
    pub(super) short: Option<char>,
    /// What it takes.
    pub(super) takes: Takes,
    /// Whether `PET_<NAME>` stands in for it.
    pub(super) has_variable: bool,
    /// Where it is shown.
    pub(super) group: Group,
    /// What it does.
    pub(super) help: &'static str,
}

impl Flag {
    /// The variable that stands in for the flag.
    pub(super) fn variable(&self) -> Option<String> {
        self.has_variable
            .then(|| format!("PET_{}", self.name.to_ascii_uppercase().replace('-', "_")))
    }

    /// Whether torchrun has the flag. Ours give way where a prefix fits both.
    pub(super) fn is_torchrun(&self) -> bool {
        self.group != Group::Ours
    }

    /// The spellings with two dashes, one or two.
    pub(super) fn spellings(&self) -> Vec<String> {
        let dashed = format!("--{}", self.name);
        let underscored = format!("--{}", self.name.replace('-', "_"));
        if dashed == underscored {
            vec![dashed]
        } else {
            vec![dashed, underscored]
        }
    }
}

const fn flag(group: Group, name: &'static str, takes: Takes, help: &'static str) -> Flag {
    Flag {
        name,
        short: None,
        takes,
        has_variable: true,
        group,
        help,
    }
}

const fn with_short(short: char, flag: Flag) -> Flag {
    Flag {
        short: Some(short),
        ..flag
    }
}

const fn without_variable(flag: Flag) -> Flag {
    Flag {
        has_variable: false,
        ..flag
    }
}

use Group::{About, Ours, Output, Program, Rendezvous, Size, Supervision};
use Takes::{Nothing, OneOf, Value};

/// All flags.
#[rustfmt::skip]
pub(super) const FLAGS: &[Flag] = &[
    flag(Size, "nnodes", Value("N|MIN:MAX"), "number of nodes, or the least and the most (1)"),
    flag(Size, "nproc-per-node", Value("N|cpu|gpu|xpu|auto"), "workers on this node: a number, one per usable CPU or accelerator, or per accelerator if there are any (1)"),
    flag(Size, "node-rank", Value("N"), "number of this node, for a static rendezvous (0)"),
    flag(Size, "role", Value("NAME"), "role of the workers, shown before their lines (default)"),
    flag(Rendezvous, "standalone", Nothing, "one node that needs no other; a free port"),
    flag(Rendezvous, "rdzv-backend", Value("static|c10d"), "how nodes find each other (static)"),
    flag(Rendezvous, "rdzv-endpoint", Value("HOST[:PORT]"), "where they meet; an IPv6 address stands in brackets"),
    flag(Rendezvous, "rdzv-id", Value("ID"), "name that the nodes of one job share (none)"),
    flag(Rendezvous, "rdzv-conf", Value("KEY=VALUE,…"), "settings of the rendezvous: join_timeout, last_call_timeout, is_host, key_file, …"),
    flag(Rendezvous, "master-addr", Value("HOST"), "where the static rendezvous and the workers meet (127.0.0.1)"),
    flag(Rendezvous, "master-port", Value("PORT"), "port of the same (29500)"),
    flag(Rendezvous, "local-addr", Value("HOST"), "address of this node that others are told"),
    with_short('m', flag(Program, "module", Nothing, "the script is the name of a Python module")),
    flag(Program, "no-python", Nothing, "the script is a program of its own: no Python before it"),
    flag(Program, "run-path", Nothing, "accepted: the script runs in Python, whatever --no-python says"),
    flag(Program, "start-method", OneOf(&["spawn", "fork", "forkserver"]), "accepted, without effect: every worker is a process of its own"),
    flag(Program, "virtual-local-rank", Nothing, "every worker sees LOCAL_RANK=0 and one accelerator"),
    without_variable(flag(Program, "numa-binding", OneOf(&["node", "socket", "exclusive", "core-complex"]), "bind each worker to CPUs near its accelerator")),
    flag(Supervision, "max-restarts", Value("N"), "restarts of all workers after a failure (0)"),
    flag(Supervision, "monitor-interval", Value("SECONDS"), "accepted: ends are noticed at once (0.1)"),
    flag(Supervision, "signals-to-handle", Value("NAME,…"), "signals that are passed on and end the run (SIGTERM,SIGINT,SIGHUP,SIGQUIT)"),
    flag(Supervision, "shutdown-timeout", Value("SECONDS"), "time between the request to end and SIGKILL ($TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else 30)"),
    flag(Output, "log-dir", Value("DIR"), "where a directory for this run's files is made"),
    with_short('r', flag(Output, "redirects", Value("MASK"), "streams that go to files: 1 stdout, 2 stderr, 3 both, or RANK:MASK,… (0)")),
    with_short('t', flag(Output, "tee", Value("MASK"), "streams that go to files and to the console; the same form (0)")),
    flag(Output, "local-ranks-filter", Value("RANK,…"), "local ranks that the console shows"),
    flag(Output, "log-line-prefix-template", Value("TEXT"), "what stands before a shown line; knows ${role_name}, ${rank}, ${local_rank}, ${node_rank}, ${hostname}"),
    flag(Output, "duplicate-stdout-filters", Value("TEXT,…"), "shown lines of stdout with one of these texts are also written to filtered_stdout.log; ,, is a comma"),
    flag(Output, "duplicate-stderr-filters", Value("TEXT,…"), "the same for stderr"),
    without_variable(flag(Output, "logs-specs", Value("NAME"), "accepted: only `default`")),
    flag(Output, "event-log-handler", Value("null|console|file:PATH"), "where one JSON line for each event goes (null)"),
    flag(Ours, "exit-code", OneOf(&["one", "worker"]), "end with 1 after a failure, or with the code of the worker that failed first (one)"),
    flag(Ours, "tee-ranks", Value("RANK,…"), "global ranks that the console shows of those that --tee names; the files get all"),
    flag(Ours, "hang-timeout", Value("DURATION"), "when no worker has written anything for this long (30m), report their stacks and stop"),
    flag(Ours, "summary", Nothing, "at the end, say time, memory and exit of each worker"),
    flag(Ours, "verbose", Nothing, "say what was found and decided"),
    flag(Ours, "store-allow", Value("CIDR,…"), "further addresses that may connect to the workers' store"),
    without_variable(with_short('h', flag(About, "help", Nothing, "show this"))),
    without_variable(flag(About, "print-completion", OneOf(&["bash", "zsh", "tcsh"]), "print a completion script for this shell")),
];
