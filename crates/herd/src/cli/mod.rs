//! The command line as types: every command, every option, every line of help.
//!
//! Nothing here acts or reads a file. Values are taken as text where the job's faults are to be
//! listed together (`job_input` judges them); clap refuses only what no job could mean.

pub(crate) mod advice;
pub(crate) mod job;
pub(crate) mod machine;
pub(crate) mod query;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// What `herd` was asked to do.
#[derive(Debug, Parser)]
#[command(
    name = "herd",
    version,
    about = "Run distributed jobs: commands, PyTorch, MPI and Ray",
    long_about = None,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = "Examples:\n  \
        herd run -- nvidia-smi                  one process on this machine\n  \
        herd run -N 2 --type pytorch --procs-per-node 4 -- python train.py\n  \
        herd submit job.yaml                    hand over a job file, print the id\n  \
        herd logs -f last                       follow the newest job\n\n\
        Variables:\n  \
        HERD_HOME     directory with jobs, as --home\n  \
        HERD_CONFIG   configuration file [default: ~/.config/herd/config.toml]"
)]
pub(crate) struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that every command takes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalArgs {
    /// Directory with jobs and their logs [default: `$XDG_STATE_HOME/herd`]
    #[arg(
        long,
        env = "HERD_HOME",
        hide_env_values = true,
        value_name = "DIR",
        global = true
    )]
    pub(crate) home: Option<PathBuf>,
    /// When to colour what a person reads
    #[arg(long, value_enum, default_value_t = When::Auto, value_name = "WHEN", global = true)]
    pub(crate) color: When,
}

/// When something is done to what a person reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    // On a terminal, unless `NO_COLOR` is set
    Auto,
    // Always
    Always,
    // Never
    Never,
}

/// The format of what a command lists or shows.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Format of the answer
    #[arg(short, long, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub(crate) output: Format,
}

/// Formats of what commands list or show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    // Columns for people
    #[default]
    Table,
    // More columns
    Wide,
    // JSON with stable keys
    Json,
    // The same as YAML
    Yaml,
    // Ids alone, one a line
    #[value(name = "id", alias = "name")]
    Id,
}

/// Every command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a job now, stream its logs, end with its exit code
    Run(Box<job::RunArgs>),
    /// Hand a job over, print its id and return
    Submit(Box<job::SubmitArgs>),
    /// List jobs, newest first
    #[command(visible_alias = "list")]
    Ls(query::LsArgs),
    /// Show one job: state, nodes, ranks, attempts
    Status(query::StatusArgs),
    /// Show or follow what a job's ranks wrote
    Logs(query::LogsArgs),
    /// Show or follow what happened to a job
    Events(query::EventsArgs),
    /// Wait until jobs have ended; end with the first bad exit code
    Wait(query::WaitArgs),
    /// Ask jobs to end
    Cancel(query::CancelArgs),
    /// Keep waiting jobs of a cluster from starting
    Hold(query::QueueArgs),
    /// Let held jobs go
    Release(query::QueueArgs),
    /// Stop running jobs of a cluster and queue them again
    Requeue(query::RequeueArgs),
    /// Tell what a job waits for, or why it ended
    Why(query::WhyArgs),
    /// Run a command inside a running job
    Exec(query::ExecArgs),
    /// Copy here what a job has left on a cluster that is reached over ssh
    Get(query::GetArgs),
    /// Show what would be submitted; nothing is sent
    Render(Box<job::RenderArgs>),
    /// Check this machine, or a backend, and say what to change
    Doctor(machine::DoctorArgs),
    /// Remove old jobs and their logs
    Gc(machine::GcArgs),
    /// Print a completion script for a shell
    Completions(machine::CompletionsArgs),
    /// Print the manual page, or write one per command into a directory
    Man(machine::ManArgs),
    /// Start and supervise workers on this node: torchrun's command line, for any program
    #[command(disable_help_flag = true)]
    Launch(machine::RawArgs),
    /// What can stand where a job is named (for completion scripts)
    #[command(hide = true)]
    Selectors(machine::SelectorsArgs),
    /// Run one node of a job (started by a driver)
    #[command(hide = true)]
    Executor(machine::RawArgs),
    /// Own one attempt of a job (started by `run` and `submit`)
    #[command(hide = true)]
    Driver(machine::RawArgs),
    /// Start a command on another node of the same job, as ssh would
    #[command(hide = true, disable_help_flag = true)]
    Rsh(machine::RawArgs),
    /// Be the parent of one MPI rank
    #[command(hide = true, disable_help_flag = true)]
    Shim(machine::RawArgs),
    /// Answer a herd that came over ssh
    #[command(hide = true)]
    LoginNode(machine::RawArgs),
    /// Bring a job to nodes that do not see its directory (started by `run` and `submit`)
    #[command(hide = true)]
    Stage(machine::RawArgs),
    /// Ask NVIDIA's library for GPUs, in a process of its own
    #[command(hide = true)]
    Nvml,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn walk(command: &clap::Command, seen: &mut Vec<String>) {
        assert!(
            command.get_about().is_some(),
            "{} has no help",
            command.get_name()
        );
        for arg in command.get_arguments() {
            assert!(
                arg.get_help().is_some() || matches!(arg.get_id().as_str(), "help" | "version"),
                "{} {} has no help",
                command.get_name(),
                arg.get_id()
            );
        }
        seen.push(command.get_name().to_owned());
        for sub in command.get_subcommands() {
            walk(sub, seen);
        }
    }

    #[test]
    fn every_command_and_every_option_has_help() {
        let mut seen = Vec::new();
        Cli::command().debug_assert();
        walk(&Cli::command(), &mut seen);
        assert!(seen.len() > 18, "{seen:?}");
    }

    #[test]
    fn amounts_say_whether_they_count_per_node_or_per_job() {
        let command = Cli::command();
        let run = command.find_subcommand("run").unwrap();
        for (id, word) in [
            ("nodes", "per job"),
            ("procs_per_node", "per node"),
            ("cpus", "per node"),
            ("mem", "per node"),
            ("gpus", "per node"),
            ("time", "of each attempt"),
        ] {
            let arg = run.get_arguments().find(|arg| arg.get_id() == id).unwrap();
            let help = arg.get_help().unwrap().to_string();
            assert!(help.contains(word), "{id}: {help}");
        }
    }
}
