//! The `ssh` command: the user's own client, configuration, keys and agent; one connection for all calls.
//!
//! The options that are set here are those without which a call could ask questions, hang, or lend the
//! login node more than it needs. The user's configuration is read and never written.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::digest::hex_digest;
use crate::target::Target;

/// Options of every call. `EscapeChar` would give bytes of a stream a meaning.
const OPTIONS: &[&str] = &[
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ConnectionAttempts=1",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "EscapeChar=none",
    "LogLevel=ERROR",
];
/// How long a connection waits for its next call, seconds.
const PERSIST: u32 = 120;
/// Longest path of the connection's socket: the kernel takes 107 bytes (`sun_path`), and `ssh` first
/// binds a name that is 17 bytes longer.
const MOST_PATH: usize = 107 - 17;

/// How to start `ssh` for one login node.
#[derive(Clone, Debug)]
pub struct Ssh {
    target: Target,
    control: Option<PathBuf>,
}

impl Ssh {
    /// For this login node. Where no directory is fit for the socket of a shared connection, each call
    /// makes one of its own.
    pub fn new(target: &Target) -> Self {
        let mut named = target.host.clone().into_bytes();
        named.push(0);
        if let Some(config) = &target.ssh_config {
            named.extend_from_slice(config.as_os_str().as_encoded_bytes());
        }
        let name = hex_digest(&named).get(..16).unwrap_or_default().to_owned();
        let control = directories()
            .into_iter()
            .map(|directory| (directory.join(&name), directory))
            .find(|(path, directory)| is_fit(path) && make_private(directory).is_ok())
            .map(|(path, _)| path);
        Self {
            target: target.clone(),
            control,
        }
    }

    /// The login node.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The command that runs `remote` there, in a process group of its own, so that a terminal's keys
    /// reach herd alone. With a terminal it stays in herd's.
    pub(crate) fn command(&self, remote: &str, terminal: bool) -> Command {
        let mut command = Command::new("ssh");
        command.args(self.arguments(terminal)).arg(remote);
        if !terminal {
            command.process_group(0);
        }
        command
    }

    fn arguments(&self, terminal: bool) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        if let Some(config) = &self.target.ssh_config {
            arguments.push("-F".into());
            arguments.push(config.into());
        }
        let mut option = |text: &str| {
            arguments.push("-o".into());
            arguments.push(text.into());
        };
        for text in OPTIONS {
            option(text);
        }
        if let Some(path) = self.control.as_ref().and_then(|path| path.to_str()) {
            option("ControlMaster=auto");
            option(&format!("ControlPath={path}"));
            option(&format!("ControlPersist={PERSIST}"));
        } else {
            option("ControlMaster=no");
            option("ControlPath=none");
        }
        arguments.push(if terminal { "-tt" } else { "-T" }.into());
        arguments.push("--".into());
        arguments.push((&self.target.host).into());
        arguments
    }
}

/// Where the socket may lie, best first.
fn directories() -> Vec<PathBuf> {
    let user = nix::unistd::geteuid();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let given = runtime.unwrap_or_else(|| PathBuf::from(format!("/run/user/{user}")));
    vec![
        given.join("herd"),
        PathBuf::from(format!("/tmp/herd-ssh-{user}")),
    ]
}

/// `ssh` expands `%` and `${…}` in the path, and quotes and spaces end it.
fn is_fit(path: &Path) -> bool {
    let Some(text) = path.to_str() else {
        return false;
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@".contains(c);
    text.len() <= MOST_PATH && text.chars().all(plain)
}

/// Makes the directory; one that others can enter, or that is another's, is refused.
fn make_private(directory: &Path) -> io::Result<()> {
    if let Err(error) = DirBuilder::new().mode(0o700).create(directory) {
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(error);
        }
    }
    let found = std::fs::symlink_metadata(directory)?;
    let own = found.uid() == nix::unistd::geteuid().as_raw();
    let others = found.mode() & 0o077;
    if found.is_dir() && own && others == 0 {
        Ok(())
    } else {
        Err(io::Error::from(io::ErrorKind::PermissionDenied))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_socket_path_is_short_and_means_itself() {
        assert!(is_fit(Path::new("/run/user/1000/herd/0123456789abcdef")));
        for path in ["/a b/x", "/a%h/x", "/a$x/x", &"/a".repeat(60)] {
            assert!(!is_fit(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn i12_a_directory_that_others_can_enter_holds_no_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("herd");
        make_private(&path).unwrap();
        make_private(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(make_private(&path).is_err());
        std::os::unix::fs::symlink(dir.path(), dir.path().join("link")).unwrap();
        assert!(make_private(&dir.path().join("link")).is_err());
    }

    #[test]
    fn the_host_is_no_option_and_nothing_is_forwarded() {
        let target = Target {
            host: "login1".to_owned(),
            ssh_config: Some("/etc/x".into()),
            home: None,
            program: None,
        };
        let arguments = Ssh::new(&target).arguments(false);
        let words: Vec<_> = arguments
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        assert_eq!(words[..2], ["-F", "/etc/x"]);
        assert_eq!(words[words.len() - 3..], ["-T", "--", "login1"]);
        assert!(words.iter().any(|word| word == "ForwardAgent=no"));
    }
}
