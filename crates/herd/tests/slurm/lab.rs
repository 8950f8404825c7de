//! A real Slurm cluster of `lab/slurm`, up for as long as the value lives.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use tempfile::TempDir;

/// A cluster. Tests that disturb none of the others share it.
pub(crate) struct Lab {
    /// What it is called in names of tests.
    pub(crate) name: &'static str,
    whole: RwLock<()>,
    /// Takes the cluster down when its standard input is closed, so also when this process is killed.
    keeper: Option<Child>,
    directory: TempDir,
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/slurm")
}

impl Lab {
    /// Brings it up with these options of `lab/slurm up`.
    pub(crate) fn up(name: &'static str, options: &[&str]) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("herd-slurm-")
            .tempdir()
            .unwrap();
        let keeper = Command::new("sh")
            .args(["-c", "read -r _; exec \"$0\" --dir \"$1\" down"])
            .arg(script())
            .arg(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lab = Self {
            name,
            whole: RwLock::default(),
            keeper: Some(keeper),
            directory,
        };
        let mut words = [&["up"], options].concat();
        // Login shells of the tester's may do anything, and Slurm starts one for each job: nodes get an
        // empty home of their own where they need nothing of the tester's.
        let herd = Path::new(env!("CARGO_BIN_EXE_herd"));
        if std::env::var_os("HOME").is_some_and(|home| !herd.starts_with(home)) {
            words.extend(["--home", "local"]);
        }
        lab.slurm(&words);
        lab
    }

    /// `lab/slurm` on this cluster; what it prints.
    pub(crate) fn slurm(&self, args: &[&str]) -> String {
        let output = Command::new(script())
            .arg("--dir")
            .arg(self.directory.path())
            .args(args)
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "lab/slurm {args:?}: {err}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// A command as from a shell of the cluster.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.directory.path().join("etc/slurm.conf"));
        for name in ["NO_COLOR", "COLUMNS", "SLURM_JOB_ID", "HERD_JOB_ID"] {
            command.env_remove(name);
        }
        command
    }

    /// One of Slurm's own commands; what it prints.
    pub(crate) fn ask(&self, words: &[&str]) -> String {
        let output = self.command(words[0]).args(&words[1..]).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {err}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// For a test beside others.
    pub(crate) fn shared(&self) -> RwLockReadGuard<'_, ()> {
        self.whole
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// For a test that the others would notice.
    pub(crate) fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.whole
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What jobs left running on the nodes.
    pub(crate) fn left(&self) -> String {
        self.slurm(&["processes"])
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            // Closes its input and waits.
            drop(keeper.stdin.take().map(|mut input| input.write_all(b"\n")));
            let down = keeper.wait().unwrap();
            if !down.success() {
                drop(writeln!(
                    std::io::stderr(),
                    "the cluster {} did not go down",
                    self.name
                ));
            }
        }
    }
}
