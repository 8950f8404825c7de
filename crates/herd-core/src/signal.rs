//! Names of signals. Numbers differ between machines, so they are the runtime's business.

/// Signals a job may name, without those that no program can handle.
pub const NAMES: &[&str] = &[
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGABRT",
    "SIGUSR1",
    "SIGUSR2",
    "SIGALRM",
    "SIGTERM",
    "SIGCONT",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
];

/// The full name, `SIGUSR1`, of what a person wrote: `SIGUSR1`, `USR1`, `usr1`.
pub fn full_name(text: &str) -> Option<&'static str> {
    let upper = text.to_ascii_uppercase();
    let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
    NAMES
        .iter()
        .copied()
        .find(|name| name.strip_prefix("SIG") == Some(bare))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_both_spellings_and_nothing_unhandleable() {
        assert_eq!(full_name("SIGUSR1"), Some("SIGUSR1"));
        assert_eq!(full_name("usr2"), Some("SIGUSR2"));
        assert_eq!(full_name("SIGKILL"), None);
        assert_eq!(full_name("SIG"), None);
        assert_eq!(full_name(""), None);
    }
}
