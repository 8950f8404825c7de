//! The commands that name jobs: what they ask, and how a job is named.

use clap::builder::RangedU64ValueParser;
use clap::{ArgAction, Args, ValueEnum};

use super::OutputArgs;
use super::job::PrefixStyle;

/// How a job is named on the command line, said once.
const SELECTOR_HELP: &str = "Job: id, the end or the unambiguous beginning of one, name (the newest so called), `slurm:25`, or `last`";
/// The same for commands that act on it.
const ACTIVE_HELP: &str = "Job: id, the end or the unambiguous beginning of one, name of one that runs, `slurm:25`, or `last`";

fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// `herd ls`.
#[derive(Clone, Debug, Args)]
pub(crate) struct LsArgs {
    /// Show every job rather than the newest ones
    #[arg(short, long, conflicts_with = "number")]
    pub(crate) all: bool,
    /// Show at most this many jobs
    #[arg(short, long, value_name = "N", default_value_t = 20, value_parser = at_least_one())]
    pub(crate) number: usize,
    /// Only jobs in these states: `running`, `failed`, `active` for all that have not ended
    #[arg(
        long,
        value_name = "STATES",
        value_delimiter = ',',
        help_heading = "Selection"
    )]
    pub(crate) state: Vec<String>,
    /// Only jobs of this name
    #[arg(long, value_name = "NAME", help_heading = "Selection")]
    pub(crate) name: Option<String>,
    /// The answer's format.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `herd status`.
#[derive(Clone, Debug, Args)]
pub(crate) struct StatusArgs {
    #[arg(value_name = "JOB", default_value = "last", help = SELECTOR_HELP)]
    pub(crate) job: String,
    /// The answer's format.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Streams of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StreamArg {
    // Standard output
    Stdout,
    // Standard error
    Stderr,
}

/// `herd logs`.
#[derive(Clone, Debug, Args)]
pub(crate) struct LogsArgs {
    #[arg(value_name = "JOB", default_value = "last", help = SELECTOR_HELP)]
    pub(crate) job: String,
    /// Follow until the job ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// With `-f`: have the job's driver send the output instead of reading the files, which a network
    /// file system may show late
    #[arg(long, requires = "follow", conflicts_with = "task")]
    pub(crate) live: bool,
    /// Only these ranks: `3`, `0-3,7`
    #[arg(long, value_name = "RANKS", help_heading = "Selection")]
    pub(crate) rank: Option<String>,
    /// Only this node, by index or name
    #[arg(long, value_name = "NODE", help_heading = "Selection")]
    pub(crate) node: Option<String>,
    /// Only lines from the last span (`10m`) or since a time (`2026-01-31T12:00:00Z`)
    #[arg(long, value_name = "TIME", help_heading = "Selection")]
    pub(crate) since: Option<String>,
    /// Only the last N lines of what is selected
    #[arg(long, value_name = "N", help_heading = "Selection")]
    pub(crate) tail: Option<usize>,
    /// Only lines that contain this text
    #[arg(long, value_name = "TEXT", help_heading = "Selection")]
    pub(crate) grep: Option<String>,
    /// Only this stream
    #[arg(long, value_enum, value_name = "STREAM", help_heading = "Selection")]
    pub(crate) stream: Option<StreamArg>,
    /// The log of one task of an array job, by index
    #[arg(long, value_name = "INDEX", help_heading = "Selection")]
    pub(crate) task: Option<u32>,
    /// Show control sequences of the job as they are
    #[arg(long, help_heading = "Output")]
    pub(crate) raw: bool,
    /// Mark of each line: `(node0, rank=3)`, `[3]` or nothing [default: full, none for a single rank]
    #[arg(long, value_enum, value_name = "STYLE", help_heading = "Output")]
    pub(crate) prefix: Option<PrefixStyle>,
}

/// `herd events`.
#[derive(Clone, Debug, Args)]
pub(crate) struct EventsArgs {
    #[arg(value_name = "JOB", default_value = "last", help = SELECTOR_HELP)]
    pub(crate) job: String,
    /// Follow until the job ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// The answer's format.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `herd wait`.
#[derive(Clone, Debug, Args)]
#[command(after_help = super::job::EXIT_CODES)]
pub(crate) struct WaitArgs {
    #[arg(value_name = "JOB", required = true, num_args = 1.., help = SELECTOR_HELP)]
    pub(crate) jobs: Vec<String>,
    /// Give up after this long, with exit code 124; the jobs go on
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<String>,
}

/// `herd cancel`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CancelArgs {
    #[arg(value_name = "JOB", required = true, num_args = 1.., help = ACTIVE_HELP)]
    pub(crate) jobs: Vec<String>,
    /// Signal that asks ranks to end, by name or number
    #[arg(long, value_name = "SIGNAL", default_value = "TERM")]
    pub(crate) signal: String,
    /// How long ranks may take before they are killed [default: the job's]
    #[arg(long, value_name = "TIME")]
    pub(crate) grace: Option<String>,
}

/// `herd hold` and `herd release`.
#[derive(Clone, Debug, Args)]
pub(crate) struct QueueArgs {
    #[arg(value_name = "JOB", required = true, num_args = 1.., help = ACTIVE_HELP)]
    pub(crate) jobs: Vec<String>,
}

/// `herd requeue`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RequeueArgs {
    #[arg(value_name = "JOB", required = true, num_args = 1.., help = ACTIVE_HELP)]
    pub(crate) jobs: Vec<String>,
    /// Hold it, so that it starts only after `herd release`
    #[arg(long)]
    pub(crate) hold: bool,
}

/// `herd why`.
#[derive(Clone, Debug, Args)]
pub(crate) struct WhyArgs {
    #[arg(value_name = "JOB", default_value = "last", help = SELECTOR_HELP)]
    pub(crate) job: String,
    /// The answer's format.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `herd get`.
#[derive(Clone, Debug, Args)]
pub(crate) struct GetArgs {
    #[arg(value_name = "JOB", help = SELECTOR_HELP)]
    pub(crate) job: String,
    /// New directory for the files [default: `NAME-ID`]
    #[arg(value_name = "DIR")]
    pub(crate) to: Option<std::path::PathBuf>,
}

/// `herd exec`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ExecArgs {
    #[arg(value_name = "JOB", help = ACTIVE_HELP)]
    pub(crate) job: String,
    /// On the node and with the environment of this rank [default: 0]
    #[arg(long, value_name = "RANK", conflicts_with = "node")]
    pub(crate) rank: Option<u32>,
    /// On this node, by index or name
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// Command to run, after `--`
    #[arg(last = true, required = true, value_name = "CMD", action = ArgAction::Append)]
    pub(crate) command: Vec<String>,
}
