//! A real Slurm cluster of `lab/slurm` for the tests of one program, and jobs of herd on it.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "shared by several test programs; helpers of tests fail the test"
)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A cluster. It goes down with the process that brought it up, however that ends.
pub(crate) struct Cluster {
    directory: PathBuf,
    /// Waits for the end of its standard input.
    _keeper: Child,
}

impl Cluster {
    /// Brings it up with these options of `lab/slurm up`, without accounting.
    pub(crate) fn up(options: &[&str]) -> Self {
        let script = std::env::var("HERD_LAB_SLURM")
            .expect("HERD_LAB_SLURM is not set; run `eval \"$(lab/env)\"`");
        let directory = tempfile::Builder::new()
            .prefix("herd-slurm-")
            .tempdir()
            .unwrap()
            .keep();
        let keeper = Command::new("sh")
            .args(["-c", "read -r _; exec \"$0\" --dir \"$1\" down"])
            .arg(&script)
            .arg(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let up = Command::new(&script)
            .arg("--dir")
            .arg(&directory)
            .args(["up", "--no-accounting"])
            .args(options)
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&up.stderr);
        assert!(up.status.success(), "lab/slurm up: {err}");
        Self {
            directory,
            _keeper: keeper,
        }
    }

    /// A command as a user of the cluster has it.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.directory.join("etc/slurm.conf"));
        for name in ["NO_COLOR", "COLUMNS", "SLURM_JOB_ID", "HERD_JOB_ID"] {
            command.env_remove(name);
        }
        command
    }

    /// What a command prints; it has to end well.
    pub(crate) fn ask(&self, words: &[&str]) -> String {
        let output = self.command(words[0]).args(&words[1..]).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {err}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// `lab/slurm` on this cluster; what it prints.
    pub(crate) fn lab(&self, args: &[&str]) -> String {
        let directory = self.directory.to_string_lossy().into_owned();
        let script = std::env::var("HERD_LAB_SLURM").unwrap();
        self.ask(&[&[script.as_str(), "--dir", &directory], args].concat())
    }
}

/// The program, and the small one beside it.
pub(crate) fn herd() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_herd"))
}
