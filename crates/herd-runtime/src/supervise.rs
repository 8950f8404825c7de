//! `herd-node supervise`: the process that looks after the workers of a host program, such as a Python
//! interpreter ([`herd_launch::supervision`]). Not for people: hosts start it with a socket.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;

use herd_core::exit;
use herd_core::text::error_report;
use herd_launch::supervision::server;
use herd_launch::{Pid, sys};
use tokio::signal::unix::{SignalKind, signal};

use crate::guard;

/// Runs `herd-node supervise ARGS` and returns the exit code, in both processes of the guard. The
/// process must have no other thread yet.
pub fn run(args: &[OsString]) -> u8 {
    let Some((channel, host)) = parse(args) else {
        complain("herd-node supervise is started by programs: --channel FD --host PID\n");
        return exit::USAGE;
    };
    // A host near its limit starts workers all the same; they get what it has.
    let _as_far_as_it_goes = sys::raise_nofile();
    guard::run(guard::STOPPED_BOUND, move || supervise(channel, host)).code
}

fn parse(args: &[OsString]) -> Option<(RawFd, Pid)> {
    let value = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1)?.to_str()?.parse::<i32>().ok()
    };
    let channel = value("--channel").filter(|&fd| fd > 2)?;
    let host = value("--host").filter(|&pid| pid > 0)?;
    Some((channel, Pid::from_raw(host)?))
}

fn supervise(channel: RawFd, host: Pid) -> u8 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let served = match runtime {
        Ok(runtime) => runtime.block_on(async {
            let mut ends = signal(SignalKind::terminate())?;
            let told = async move {
                ends.recv().await;
            };
            let channel = UnixStream::from(sys::take_inherited(channel)?);
            server::serve(channel, Some(host), told).await
        }),
        Err(error) => Err(error.into()),
    };
    match served {
        Ok(()) => exit::SUCCESS,
        Err(error) => {
            complain(&error_report(&error));
            exit::HERD_FAILED
        }
    }
}

/// A closed stderr is no reason to fail.
fn complain(text: &str) {
    drop(std::io::stderr().write_all(text.as_bytes()));
}
