//! What is wrong with a command line.

/// Where a value was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// By this flag, in its dashed spelling.
    Flag(&'static str),
    /// By this variable.
    Variable(String),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Flag(name) => write!(f, "--{name}"),
            Self::Variable(name) => f.write_str(name),
        }
    }
}

/// Why a command line cannot be followed. The message ends in a hint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// No such flag.
    #[error("there is no flag `{flag}`\nhint: {}", .nearest.as_ref().map_or_else(
        || "`--help` lists all flags; those of the script stand after it".to_owned(),
        |nearest| format!("did you mean `{nearest}`? Flags of the script stand after it")))]
    Unknown {
        /// As written.
        flag: String,
        /// What may have been meant.
        nearest: Option<String>,
    },
    /// A prefix of several flags.
    #[error("ambiguous option: `{flag}` could match {}\nhint: write one of them out", .candidates.join(", "))]
    Ambiguous {
        /// As written.
        flag: String,
        /// All it could be.
        candidates: Vec<String>,
    },
    /// A flag at the end, or before another flag, that needs a value.
    #[error(
        "`--{flag}` needs a value ({form})\nhint: write `--{flag}={form}`; a value that begins with a dash needs the equals sign"
    )]
    MissingValue {
        /// Its name.
        flag: &'static str,
        /// What it takes.
        form: String,
    },
    /// A switch with a value.
    #[error(
        "`--{flag}` takes no value, but `{value}` was given\nhint: write `--{flag}` alone, or leave it out"
    )]
    UnexpectedValue {
        /// Its name.
        flag: &'static str,
        /// What was given.
        value: String,
    },
    /// A value that is not what the flag takes.
    #[error("{origin}: `{value}` {reason}\nhint: {hint}")]
    Value {
        /// The flag or the variable.
        origin: Origin,
        /// What was given.
        value: String,
        /// What is wrong with it.
        reason: String,
        /// What to give.
        hint: String,
    },
    /// Two things that exclude each other, or one that needs another.
    #[error("{reason}\nhint: {hint}")]
    Conflict {
        /// What contradicts what.
        reason: String,
        /// What to change.
        hint: String,
    },
    /// Something torchrun offers and herd does not.
    #[error("{origin}: {reason}\nhint: {hint}")]
    Refused {
        /// The flag or the variable.
        origin: Origin,
        /// What is not offered.
        reason: String,
        /// The alternative.
        hint: String,
    },
    /// No script.
    #[error(
        "no training script is given\nhint: the script and its arguments come last, as in `herdrun --nproc-per-node 2 train.py --lr 0.1`"
    )]
    NoScript,
}

impl FlagError {
    /// The code to end with: 2, as torchrun's own for its usage errors.
    pub const EXIT_CODE: u8 = herd_core::exit::USAGE;
}

/// What was given, for a message: not too long, and without control characters.
pub(super) fn shown(text: &std::ffi::OsStr) -> String {
    text.to_string_lossy()
        .chars()
        .take(100)
        .map(herd_core::text::visible)
        .collect()
}
