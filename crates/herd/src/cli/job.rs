//! The commands that take a job: `run`, `submit`, `render`, and the flags they share.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::OutputArgs;

/// What `run` and `wait` end with.
pub(crate) const EXIT_CODES: &str = "Exit codes:\n  \
    0           the job succeeded\n  \
    2           the job file or a flag is wrong, or the backend cannot honour it: nothing was started\n  \
    124         the time limit passed\n  \
    125         a node or the driver was lost, the job was rejected later, or herd itself failed\n  \
    126, 127    the program cannot be executed, was not found\n  \
    130         the job was cancelled (128 + n where signal n to herd did it)\n  \
    otherwise   the code of the rank that failed first, 128 + n where signal n ended it";

/// Where the job comes from, and what the flags say over it.
///
/// Amounts stay text: `job_input` reads them, so that all faults are listed at once.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct JobArgs {
    /// Job file, batch script with `#SBATCH` lines, or SkyPilot task file; `-` reads standard input
    #[arg(value_name = "FILE", conflicts_with = "command")]
    pub(crate) file: Option<PathBuf>,
    /// Command to run instead of a file, after `--`
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,

    /// Number of nodes, per job
    #[arg(short = 'N', long, value_name = "N", help_heading = "Size")]
    pub(crate) nodes: Option<String>,
    /// Processes herd starts, per node; `gpu` for one per GPU
    #[arg(long, value_name = "N", help_heading = "Size")]
    pub(crate) procs_per_node: Option<String>,
    /// CPUs, per node
    #[arg(short, long, value_name = "N", help_heading = "Size")]
    pub(crate) cpus: Option<String>,
    /// Memory such as `32GiB`, per node
    #[arg(long, value_name = "SIZE", help_heading = "Size")]
    pub(crate) mem: Option<String>,
    /// GPUs, per node, with or without a type: `4`, `h800:4`
    #[arg(long, value_name = "[TYPE:]N", help_heading = "Size")]
    pub(crate) gpus: Option<String>,
    /// Time limit of each attempt: `90m`, `2h`, `1-02:00:00`
    #[arg(short, long, value_name = "TIME", help_heading = "Size")]
    pub(crate) time: Option<String>,

    /// What the command is, per job: command, pytorch, mpi or ray
    #[arg(long = "type", value_name = "TYPE", help_heading = "Job")]
    pub(crate) job_type: Option<String>,
    /// Name of the job
    #[arg(short = 'J', long, value_name = "NAME", help_heading = "Job")]
    pub(crate) name: Option<String>,
    /// Directory the job runs in, the same on every node
    #[arg(long, value_name = "DIR", help_heading = "Job")]
    pub(crate) workdir: Option<PathBuf>,
    /// Variable for every process of the job; may be repeated
    #[arg(long, value_name = "K=V", action = ArgAction::Append, help_heading = "Job")]
    pub(crate) env: Vec<String>,
    /// File with `K=V` lines for every process of the job; may be repeated
    #[arg(long, value_name = "FILE", action = ArgAction::Append, help_heading = "Job")]
    pub(crate) env_file: Vec<PathBuf>,
    /// Secret variable, its value read now from the variable of that name or the place given
    #[arg(long, value_name = "NAME[=env:VAR|file:PATH]", action = ArgAction::Append,
          help_heading = "Job")]
    pub(crate) secret: Vec<String>,

    /// Backend that runs the job [default: the file's, else this machine]
    #[arg(short, long, value_name = "BACKEND", help_heading = "Place")]
    pub(crate) backend: Option<String>,
    /// Partition, per job
    #[arg(
        short,
        long,
        value_name = "NAME",
        help_heading = "Slurm (refused by other backends)"
    )]
    pub(crate) partition: Option<String>,
    /// Account, per job
    #[arg(
        short = 'A',
        long,
        value_name = "NAME",
        help_heading = "Slurm (refused by other backends)"
    )]
    pub(crate) account: Option<String>,
    /// Quality of service, per job
    #[arg(
        short,
        long,
        value_name = "NAME",
        help_heading = "Slurm (refused by other backends)"
    )]
    pub(crate) qos: Option<String>,
    /// Nodes the job must have, such as `n[01-03,7]`, per job
    #[arg(
        long,
        value_name = "HOSTS",
        help_heading = "Slurm (refused by other backends)"
    )]
    pub(crate) nodelist: Option<String>,
    /// Nodes the job must not have, per job
    #[arg(
        long,
        value_name = "HOSTS",
        help_heading = "Slurm (refused by other backends)"
    )]
    pub(crate) exclude: Option<String>,
}

// The values have no help of their own: with it, every help text would fall into its long form.
/// How the merged output of ranks is marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PrefixStyle {
    // Node and rank: `(node0, rank=3)`
    #[default]
    Full,
    // The rank alone: `[3]`
    Rank,
    // Nothing
    None,
}

/// What `run` says about itself below its flags.
fn run_notes() -> String {
    format!(
        "Examples:\n  \
        herd run job.yaml                       a job file\n  \
        herd run -- python train.py             a program, after `--`\n  \
        herd run -N 2 --gpus 8 -t 2h job.yaml   flags stand over the file\n\n\
        Signals:\n  \
        Ctrl-C, TERM   cancel the job: ranks are asked to end, and killed after their grace; a second\n                 \
        one kills them at once\n  \
        Ctrl-Z         stops the job with its ranks; `fg` and `bg` go on\n\n{EXIT_CODES}"
    )
}

/// `herd run`.
#[derive(Clone, Debug, Args)]
#[command(after_help = run_notes())]
pub(crate) struct RunArgs {
    /// The job.
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// Mark of each line: `(node0, rank=3)`, `[3]` or nothing [default: full, none for a single rank]
    #[arg(long, value_enum, value_name = "STYLE", help_heading = "Output")]
    pub(crate) prefix: Option<PrefixStyle>,
    /// Show control sequences of the job as they are
    #[arg(long, help_heading = "Output")]
    pub(crate) raw: bool,
    /// Follow the job's output; `run` always does
    #[arg(short, long, help_heading = "Output")]
    pub(crate) follow: bool,
}

/// `herd submit`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SubmitArgs {
    /// The job.
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// Follow the output until the job ends; Ctrl-C leaves the job running
    #[arg(short, long, help_heading = "Output")]
    pub(crate) follow: bool,
    /// Cancel the job when this process ends (this machine's backend alone; for programs that hand over their own work)
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) while_process: Option<i32>,
    /// The answer's format.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `herd render`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RenderArgs {
    /// The job.
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// The answer's format.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
