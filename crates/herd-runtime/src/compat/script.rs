//! The text that a shell runs (§5), and how the shell gets it: from memory rather than from a temporary
//! file, which would hold what the job exports and stay behind (row 26).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::fs::{MemfdFlags, memfd_create};

use super::scrub;

/// Up to the user's own lines. A profile that is missing or fails is no reason not to run.
const PROFILE: &str = r#"[ -f ~/.bashrc ] && . ~/.bashrc
if [ "$(type -t conda)" = file ]; then . "$(conda info --base 2>/dev/null)/etc/profile.d/conda.sh" >/dev/null 2>&1; fi
for herd_own in "${SKY_RUNTIME_DIR:-$HOME}" "$HOME"; do PATH=":$PATH:"; PATH=${PATH//":$herd_own/skypilot-runtime/bin:"/:}; PATH=${PATH#:}; PATH=${PATH%:}; done; unset -v herd_own
export PATH PYTHONUNBUFFERED=1
cd ~/sky_workdir 2>/dev/null
"#;

/// The whole text.
pub(super) fn compose(user: &str, variables: &BTreeMap<String, String>) -> String {
    let mut text = PROFILE.to_owned();
    for (name, value) in variables {
        text.push_str("export ");
        text.push_str(name);
        text.push('=');
        text.push_str(&quote(value));
        text.push('\n');
    }
    text.push_str(&scrub::line());
    text.push('\n');
    text.push_str(user);
    text.push('\n');
    text
}

/// One word of a shell, whatever it holds.
fn quote(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

/// A file in memory with a text for a shell.
#[derive(Debug)]
pub(super) struct InMemory(OwnedFd);

impl InMemory {
    /// Holds `text`. The shell has opened the file anew when it reads the first line, which closes the
    /// descriptor that it inherits.
    pub(super) fn new(text: &str) -> io::Result<Self> {
        let fd = memfd_create("sky_app", MemfdFlags::CLOEXEC)?;
        let mut file = File::from(fd.try_clone()?);
        writeln!(file, "exec {}<&-", fd.as_raw_fd())?;
        file.write_all(text.as_bytes())?;
        Ok(Self(fd))
    }

    /// Its name for a process that inherits it.
    pub(super) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }

    /// The descriptor to inherit.
    pub(super) fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }
}
