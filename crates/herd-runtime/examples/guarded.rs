//! A supervisor under a guard, for the tests of the guard: `guarded DIRECTORY COMMAND…` runs the
//! command as a rank, writes its own id to `DIRECTORY/worker` and the rank's to `DIRECTORY/rank`,
//! counts the signals it gets in `DIRECTORY/signals`, and ends with the rank's code. The variable
//! `STOPPED_BOUND_MS` says how long the supervisor may stand still.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use herd_launch::{Group, Output, ProcessSpec, Signal};
use herd_runtime::guard;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let directory = PathBuf::from(arguments.next().unwrap_or_default());
    let command: Vec<OsString> = arguments.collect();
    let bound =
        std::env::var("STOPPED_BOUND_MS").map(|text| text.parse().map(Duration::from_millis));
    let bound = bound
        .ok()
        .and_then(Result::ok)
        .unwrap_or(guard::STOPPED_BOUND);
    let ended = guard::run(bound, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime
            .map_err(Into::into)
            .and_then(|runtime| runtime.block_on(work(&directory, command)))
            .unwrap_or(125)
    });
    ExitCode::from(ended.code)
}

async fn work(directory: &Path, command: Vec<OsString>) -> Result<u8, Box<dyn std::error::Error>> {
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut user = signal(SignalKind::user_defined1())?;
    let mut spec = ProcessSpec::new(command, std::env::vars_os().collect(), "/");
    spec.stdout = Output::Inherit;
    spec.stderr = Output::Inherit;
    let mut group = Group::spawn_all(vec![spec])?;
    let mut log = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(directory.join("signals"))?;
    std::fs::write(directory.join("rank"), format!("{}\n", group.pids()[0]))?;
    std::fs::write(
        directory.join("worker"),
        format!("{}\n", std::process::id()),
    )?;
    let mut code = 0;
    loop {
        let name = tokio::select! {
            end = group.next_exit() => match end {
                Some((_, info)) => {
                    code = info.end.code();
                    continue;
                }
                None => return Ok(code),
            },
            _ = term.recv() => "TERM",
            _ = interrupt.recv() => "INT",
            _ = user.recv() => "USR1",
        };
        writeln!(log, "{name}")?;
        if guard::guard_is_gone() {
            group.stop(Signal::TERM, Duration::from_millis(500));
        } else if name == "TERM" {
            group.stop(Signal::TERM, Duration::from_mins(10));
        }
    }
}
