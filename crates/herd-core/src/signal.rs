//! Names of signals, and Linux's numbers of those that people name.

/// Signals by the names that people use.
const NUMBERS: &[(&str, u8)] = &[
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("XCPU", 24),
    ("XFSZ", 25),
];

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

/// The name of a signal, `SIGTERM`, where it has a usual one.
pub fn name_of(number: u8) -> Option<String> {
    let (name, _) = NUMBERS.iter().find(|(_, n)| *n == number)?;
    Some(format!("SIG{name}"))
}

/// A signal by name, with or without `SIG`, or by number from 1 to 64.
pub fn parse(text: &str) -> Option<u8> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let named = NUMBERS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, number)| *number);
    named.or_else(|| text.parse().ok().filter(|number| (1..=64).contains(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        for text in ["TERM", "SIGTERM", "sigterm", "15"] {
            assert_eq!(parse(text), Some(15));
        }
        for text in ["", "0", "65", "-1", "NONSENSE"] {
            assert_eq!(parse(text), None);
        }
        assert_eq!(name_of(9).as_deref(), Some("SIGKILL"));
        assert_eq!(name_of(60), None);
    }

    #[test]
    fn accepts_both_spellings_and_nothing_unhandleable() {
        assert_eq!(full_name("SIGUSR1"), Some("SIGUSR1"));
        assert_eq!(full_name("usr2"), Some("SIGUSR2"));
        assert_eq!(full_name("SIGKILL"), None);
        assert_eq!(full_name("SIG"), None);
        assert_eq!(full_name(""), None);
    }
}
