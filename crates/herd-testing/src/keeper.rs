//! Clears up when a test's process has ended, however it did.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A process that runs a line of `sh` as soon as the value is dropped or this process is gone.
#[derive(Debug)]
pub struct Keeper(Child);

impl Keeper {
    /// Starts one; `$0` and `$1`… in the line are these paths.
    pub fn start(line: &str, paths: &[&Path]) -> Self {
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("read -r _; {line}")])
            .args(paths)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Whoever kills the test's process group does not kill it.
            .process_group(0);
        Self(command.spawn().unwrap())
    }

    /// Has it run the line, and waits; whether all went well.
    pub fn run(&mut self) -> bool {
        // Closes its input.
        drop(self.0.stdin.take().map(|mut input| input.write_all(b"\n")));
        self.0.wait().unwrap().success()
    }
}
