//! What `ssh` and the shell there say when something is wrong, and what helps.

use std::fmt;

/// Most bytes of what was said that are kept; the end says most.
pub(crate) const MOST: usize = 16 * 1024;
/// Lines shown.
const LINES: usize = 6;

/// What was said on standard error, or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said(String);

impl Said {
    /// The last lines of these bytes.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let lines: Vec<&str> = text
            .lines()
            .map(str::trim_end)
            .filter(|line| !line.is_empty())
            .collect();
        let first = lines.len().saturating_sub(LINES);
        Self(lines.get(first..).unwrap_or_default().join("; "))
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<&'static str> {
        HINTS
            .iter()
            .find(|(words, _)| words.iter().any(|word| self.0.contains(word)))
            .map(|(_, hint)| *hint)
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            f.write_str("it said nothing")
        } else {
            f.write_str(&self.0)
        }
    }
}

/// Words of `ssh`, the kernel and shells, with what helps; the first that fits.
const HINTS: &[(&[&str], &str)] = &[
    (
        &["REMOTE HOST IDENTIFICATION HAS CHANGED"],
        "the host's key is not the one that is known: ask its administrators before `ssh-keygen -R HOST`",
    ),
    (
        &[
            "Host key verification failed",
            "No host key is known",
            "No ED25519 host key is known",
        ],
        "connect once by hand with `ssh HOST` and confirm the host's key; herd confirms none",
    ),
    (
        &["Permission denied (", "Too many authentication failures"],
        "`ssh -o BatchMode=yes HOST true` must work without a question: load the key into the agent \
         (`ssh-add`) or name it with `IdentityFile` in ~/.ssh/config",
    ),
    (
        &["Could not resolve hostname"],
        "`host` in the configuration is what `ssh` is given: a name in ~/.ssh/config or of the network",
    ),
    (
        &[
            "No route to host",
            "Network is unreachable",
            "Connection timed out",
            "timed out",
        ],
        "the machine does not answer: is the VPN up, and is a `ProxyJump` needed?",
    ),
    (
        &["Connection refused"],
        "no ssh server answers there: is `Port` in ~/.ssh/config right?",
    ),
    (
        &["No space left on device", "Disk quota exceeded"],
        "free space there (`herd gc` on the login node removes jobs that have ended), or let `home` in \
         the configuration name another directory",
    ),
    (
        &[
            "Read-only file system",
            "cannot create directory",
            "mkdir:",
            "mktemp:",
        ],
        "let `home` in the configuration name a directory there that you can write to and the nodes see",
    ),
    (
        &["Exec format error", "cannot execute"],
        "install a herd for that machine there, and name it with `program` in the configuration",
    ),
    (
        &["This account is currently not available", "nologin"],
        "the account there has no shell; ask the administrators for one",
    ),
    (
        &["not found"],
        "a program is missing there: herd needs `sh`, `head`, `tar` and `mktemp` on a login node",
    ),
    (
        &[
            "Connection closed",
            "Connection reset",
            "kex_exchange_identification",
        ],
        "the ssh server, or what is before it, ends connections before they begin: it may be overloaded \
         or not let this machine in",
    ),
    (
        &["Bad configuration option", "Bad owner or permissions"],
        "ssh refuses its own configuration; `ssh HOST true` shows the same",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ssh_says_has_a_hint() {
        for (said, word) in [
            ("Host key verification failed.", "by hand"),
            (
                "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
                "administrators",
            ),
            ("me@h: Permission denied (publickey).", "ssh-add"),
            ("ssh: connect to host h port 22: Connection refused", "Port"),
            ("ssh: connect to host h port 22: No route to host", "VPN"),
            ("Connection timed out during banner exchange", "VPN"),
            (
                "ssh: Could not resolve hostname h: Name or service not known",
                "host",
            ),
            (
                "tar: herd: Wrote only 0 of 10240 bytes: No space left on device",
                "free space",
            ),
            (
                "mkdir: cannot create directory '/x': Disk quota exceeded",
                "free space",
            ),
            ("sh: 1: tar: not found", "tar"),
        ] {
            let said = Said::new(said.as_bytes());
            assert!(said.hint().unwrap().contains(word), "{said}");
        }
        assert_eq!(Said::new(b"what?").hint(), None);
    }

    #[test]
    fn only_the_last_lines_are_shown() {
        let lines: Vec<String> = (0..50).map(|n| format!("line {n}")).collect();
        let text = lines.join("\n\n");
        let said = Said::new(text.as_bytes());
        assert_eq!(said.text().matches(';').count(), LINES - 1);
        assert!(said.text().ends_with("line 49"));
    }
}
