//! The commands about this machine and about herd itself, and the hidden ones for backends.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

use super::OutputArgs;

/// `herd doctor`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Check this backend rather than this machine
    #[arg(short, long, value_name = "BACKEND")]
    pub(crate) backend: Option<String>,
    /// The answer's format.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `herd gc`.
#[derive(Clone, Debug, Args)]
pub(crate) struct GcArgs {
    /// Only say what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Remove ended jobs older than this
    #[arg(long, value_name = "TIME", default_value = "30d")]
    pub(crate) older_than: String,
    /// Never remove the newest N ended jobs
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) keep: usize,
    /// The answer's format.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `herd completions`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "To complete in every new shell:\n  \
    herd completions bash > ~/.local/share/bash-completion/completions/herd\n  \
    herd completions zsh > ~/.zfunc/_herd       # a directory of $fpath\n  \
    herd completions fish > ~/.config/fish/completions/herd.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// `herd selectors`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SelectorsArgs {
    /// Only jobs that have not ended
    #[arg(long)]
    pub(crate) active: bool,
}

/// `herd man`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "To read pages as `man herd-run`:\n  \
    herd man ~/.local/share/man/man1\n  \
    herd man | man -l -                         # without installing")]
pub(crate) struct ManArgs {
    /// Directory for one page per command; without it herd's own page is printed
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// A hidden command: its arguments belong to the program that starts it.
#[derive(Clone, Debug, Args)]
pub(crate) struct RawArgs {
    /// Arguments as the backend gives them
    #[arg(
        value_name = "ARGS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) args: Vec<OsString>,
}
