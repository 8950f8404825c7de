//! `herd launch`, also as `herdrun`: from its arguments to its exit code. What only a program may do
//! is done here (guard, signals, limits); everything else is herd-launch's.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::Path;

use herd_core::exit;
use herd_launch::agent::Told;
use herd_launch::sys;
use herd_launch::torchrun::flags::{self, Command, Flags};
use herd_launch::torchrun::run::{self, Status};
use nix::sys::signal::Signal as NixSignal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use zeroize::Zeroizing;

use crate::guard;

/// The name under which the binaries behave as `herd launch`.
pub const PROGRAM: &str = "herdrun";
/// The secret that the nodes of a job share.
const KEY_VARIABLE: &str = "HERD_RDZV_KEY";
/// What torchrun ends with, whatever went wrong.
const FAILED: u8 = 1;
/// Signals that wait to be acted on.
const QUEUE: usize = 16;

/// Whether a program that was started under this name is to behave as `herd launch`.
pub fn is_called(own_name: &OsStr) -> bool {
    Path::new(own_name).file_name() == Some(OsStr::new(PROGRAM))
}

/// Runs `herd launch ARGS` and returns the exit code, in both processes of the guard. The process
/// must have no other thread yet.
pub fn run(args: &[OsString]) -> u8 {
    match flags::parse(args, &|name| std::env::var_os(name)) {
        Ok(Command::Help) => show(&flags::help("herd launch")),
        Ok(Command::PrintCompletion(shell)) => show(&flags::completion(shell, PROGRAM)),
        Ok(Command::Launch(flags)) => {
            for warning in &flags.warnings {
                complain(&format!("warning: {warning}"));
            }
            // In this process's own environment it would stay to be read by others of the user.
            let secret = std::env::var_os(KEY_VARIABLE)
                .map(|text| Zeroizing::new(text.to_string_lossy().into_owned()));
            if let Err(error) = sys::forget_variable(OsStr::new(KEY_VARIABLE)) {
                complain(&format!("warning: cannot wipe {KEY_VARIABLE}: {error}"));
            }
            let launched = || launch(*flags, secret.as_ref().map(|text| text.as_str()));
            guard::run(guard::STOPPED_BOUND, launched).code
        }
        Err(error) => {
            complain(&format!("error: {error}"));
            exit::USAGE
        }
    }
}

fn show(text: &str) -> u8 {
    // A reader that left has what it wanted.
    drop(io::stdout().write_all(text.as_bytes()));
    exit::SUCCESS
}

/// A closed stderr is no reason to fail.
fn complain(text: &str) {
    drop(writeln!(io::stderr(), "herd launch: {text}"));
}

fn launch(flags: Flags, secret: Option<&str>) -> u8 {
    let prepared = sys::raise_nofile().and_then(|()| {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
    });
    let runtime = match prepared {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("cannot start the event loop: {error}"));
            return FAILED;
        }
    };
    let status = runtime.block_on(async {
        let mut told = match Signals::watch(&flags) {
            Ok(signals) => signals,
            Err(error) => {
                complain(&format!("cannot watch for signals: {error}"));
                return Status {
                    code: FAILED,
                    report: String::new(),
                };
            }
        };
        run::run(flags, secret, &mut told.queue).await
    });
    // A name that is still being looked up waits for nobody.
    runtime.shutdown_background();
    if !status.report.is_empty() {
        drop(io::stderr().write_all(status.report.as_bytes()));
    }
    status.code
}

/// Signals as the agent is told of them, and the tasks that wait for each.
struct Signals {
    queue: mpsc::Receiver<Told>,
    _tasks: JoinSet<()>,
}

impl Signals {
    fn watch(flags: &Flags) -> io::Result<Self> {
        let (say, queue) = mpsc::channel(QUEUE);
        let mut tasks = JoinSet::new();
        let ends = flags.signals_to_handle.signals.iter();
        let ends: Vec<SignalKind> = ends
            .map(|signal| SignalKind::from_raw(signal.as_raw()))
            .collect();
        let passed_on = [SignalKind::user_defined1(), SignalKind::user_defined2()];
        let passed_on = passed_on.into_iter().filter(|kind| !ends.contains(kind));
        for kind in ends.iter().copied().chain(passed_on) {
            let number = kind.as_raw_value();
            let told = if ends.contains(&kind) {
                Told::End(number)
            } else {
                Told::Forward(number)
            };
            // A hang-up that nohup has had ignored stays ignored (D15).
            if kind == SignalKind::hangup() && sys::is_ignored(NixSignal::SIGHUP) {
                continue;
            }
            let mut stream = signal(kind)?;
            let say = say.clone();
            tasks.spawn(async move {
                while stream.recv().await.is_some() {
                    // The guard's death is announced by SIGTERM.
                    let told = if guard::guard_is_gone() {
                        Told::Orphaned
                    } else {
                        told
                    };
                    if say.send(told).await.is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Self {
            queue,
            _tasks: tasks,
        })
    }
}
