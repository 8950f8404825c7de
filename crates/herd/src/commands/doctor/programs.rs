//! Checks of the programs that jobs use: Python with torch, MPI, Ray, Slurm. None is required.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Finding, Verdict};
use crate::watch::Watch;

/// A program that has not answered by then is taken for broken.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between looks at a program that runs.
const PAUSE: Duration = Duration::from_millis(5);
/// Most bytes read of an answer; a pipe holds more, so the program never waits for a reader.
const MAX_ANSWER: u64 = 4096;

/// Versions of packages, without importing them: importing torch takes seconds.
const VERSIONS: &str = "\
import sys
from importlib.metadata import version, PackageNotFoundError
print('python', sys.version.split()[0])
for name in ('torch', 'ray'):
    try:
        print(name, version(name))
    except PackageNotFoundError:
        pass
";

/// Every program.
pub(super) fn all() -> Vec<Finding> {
    let mut findings = python();
    findings.push(mpi("mpirun"));
    findings.push(mpi("mpiexec.hydra"));
    if let Some(path) = find("sbatch") {
        findings.push(
            Finding::ok("slurm", path.display().to_string())
                .remedy("`herd doctor -b slurm` checks the cluster, `herd run -b slurm` uses it"),
        );
    }
    findings
}

fn python() -> Vec<Finding> {
    let Some(path) = find("python3") else {
        return vec![
            Finding::new("python3", Verdict::Warn, "not on PATH")
                .remedy("install Python for pytorch and ray jobs"),
        ];
    };
    let mut command = Command::new(&path);
    command.args(["-c", VERSIONS]);
    let answer = match ask(command) {
        Ok(answer) => answer,
        Err(problem) => {
            let detail = format!("{}: {problem}", path.display());
            return vec![Finding::new("python3", Verdict::Warn, detail)];
        }
    };
    let version = |name: &str| {
        answer.lines().find_map(|line| {
            line.strip_prefix(name)?
                .strip_prefix(' ')
                .map(str::to_owned)
        })
    };
    let python = version("python").unwrap_or_else(|| "of an unknown version".to_owned());
    let package = |name: &'static str, kind: &str| match version(name) {
        Some(version) => Finding::ok(name, version),
        None => Finding::new(
            name,
            Verdict::Warn,
            format!("not found by {}", path.display()),
        )
        .remedy(format!(
            "{kind} jobs need it: activate the environment that has it"
        )),
    };
    vec![
        Finding::ok("python3", format!("{python}, {}", path.display())),
        package("torch", "pytorch"),
        package("ray", "ray"),
    ]
}

fn mpi(program: &'static str) -> Finding {
    let Some(path) = find(program) else {
        // Either of the two launchers is enough, and most jobs need none.
        return Finding::ok(program, "not on PATH; only mpi jobs need one");
    };
    let mut command = Command::new(&path);
    command.arg("--version");
    match ask(command) {
        Ok(answer) => {
            // Open MPI says its version in the first line, Hydra in one that begins so.
            let version = answer
                .lines()
                .find_map(|line| line.trim().strip_prefix("Version:"));
            let first = version.or_else(|| answer.lines().find(|line| !line.trim().is_empty()));
            let first = first.unwrap_or_default().trim();
            Finding::ok(program, format!("{}, {first}", path.display()))
        }
        Err(problem) => Finding::new(
            program,
            Verdict::Warn,
            format!("{}: {problem}", path.display()),
        ),
    }
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

/// Runs a program for a bounded time; what it wrote to standard output.
fn ask(mut command: Command) -> Result<String, String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot be started: {error}"))?;
    let deadline = Instant::now() + PATIENCE;
    let pause = Watch::new();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => pause.wait(PAUSE),
            Ok(None) | Err(_) => {
                // It may have ended just now; either way it is gone after the wait.
                drop(child.kill());
                drop(child.wait());
                return Err(format!("gave no answer within {} s", PATIENCE.as_secs()));
            }
        }
    };
    if !status.success() {
        return Err(format!("ended with {status}"));
    }
    let mut bytes = Vec::new();
    if let Some(output) = child.stdout.take() {
        output
            .take(MAX_ANSWER)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("cannot be read: {error}"))?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_and_failures_are_told_apart() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo yes"]);
        assert_eq!(ask(command).unwrap(), "yes\n");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exit 3"]);
        assert!(ask(command).unwrap_err().contains('3'));
        assert!(ask(Command::new("/nonexistent")).is_err());
    }
}
