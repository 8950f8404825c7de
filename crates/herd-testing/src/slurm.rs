//! A real Slurm cluster of `lab/slurm`, up for as long as the value lives, and no longer than the process.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::keeper::Keeper;

/// Variables of whoever runs the tests that would change what commands do.
const REMOVED: [&str; 6] = [
    "NO_COLOR",
    "CLICOLOR_FORCE",
    "COLUMNS",
    "SLURM_JOB_ID",
    "HERD_JOB_ID",
    "HERD_CONFIG",
];

/// A cluster.
#[derive(Debug)]
pub struct SlurmLab {
    directory: PathBuf,
    /// Takes the cluster down, also when this process is killed.
    keeper: Keeper,
    /// Variables that a shell of the cluster has besides ours.
    variables: Vec<(OsString, OsString)>,
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/slurm")
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {err}");
    output
}

impl SlurmLab {
    /// Brings one up with these options of `lab/slurm up`.
    pub fn up(options: &[&str]) -> Self {
        let directory = tempfile::Builder::new().prefix("herd-slurm-").tempdir();
        let directory = directory.unwrap().keep();
        let down = "\"$0\" --dir \"$1\" down && rm -rf \"$1\"";
        let keeper = Keeper::start(down, &[&script(), &directory]);
        let mut lab = Self {
            directory,
            keeper,
            variables: Vec::new(),
        };
        lab.slurm(&[&["up"], options].concat());
        let exports = lab.slurm(&["env"]);
        let shell = ["-c", "eval \"$0\"; exec env -0", &exports];
        let shell = run(Command::new("bash").args(shell));
        lab.variables = shell
            .stdout
            .split(|byte| *byte == 0)
            .filter_map(|variable| {
                let at = variable.iter().position(|byte| *byte == b'=')?;
                let (name, value) = (&variable[..at], &variable[at + 1..]);
                let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
                Some((text(name), text(value)))
            })
            .filter(|(name, value)| name != "_" && std::env::var_os(name).as_ref() != Some(value))
            .collect();
        lab
    }

    /// `lab/slurm` on this cluster; what it prints.
    pub fn slurm(&self, args: &[&str]) -> String {
        let mut command = Command::new(script());
        command.arg("--dir").arg(&self.directory).args(args);
        String::from_utf8(run(&mut command).stdout).unwrap()
    }

    /// Puts a command into the cluster: it is as from a shell there, and in no job.
    pub fn enter(&self, command: &mut Command) {
        command
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env_remove("SLURM_JOB_ID")
            .env_remove("HERD_JOB_ID");
    }

    /// What a variable holds in a shell of the cluster.
    pub fn variable(&self, name: &str) -> String {
        let found = self.variables.iter().find(|(known, _)| known == name);
        found.unwrap().1.to_string_lossy().into_owned()
    }

    /// A command as from a shell of the cluster.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        for name in REMOVED {
            command.env_remove(name);
        }
        self.enter(&mut command);
        command
    }

    /// The `PATH` of a shell of the cluster.
    pub fn search_path(&self) -> OsString {
        let own = self.variables.iter().find(|(name, _)| name == "PATH");
        let path = own.map(|(_, path)| path.clone());
        path.or_else(|| std::env::var_os("PATH"))
            .unwrap_or_default()
    }

    /// Where a shell of the cluster finds a program.
    pub fn which(&self, program: &str) -> PathBuf {
        let path = self.search_path();
        let mut found = std::env::split_paths(&path).map(|directory| directory.join(program));
        found
            .find(|path| path.is_file())
            .unwrap_or_else(|| panic!("{program} is not on the cluster's PATH"))
    }

    /// One of Slurm's own commands, which has to end well; what it prints.
    pub fn ask(&self, words: &[&str]) -> String {
        let output = run(self.command(words[0]).args(&words[1..]));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for SlurmLab {
    fn drop(&mut self) {
        if !self.keeper.run() {
            let where_it_is = self.directory.display();
            drop(writeln!(
                std::io::stderr(),
                "the cluster in {where_it_is} did not go down"
            ));
        }
    }
}
