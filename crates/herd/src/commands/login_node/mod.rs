//! `herd login-node`: answers a herd that came here over ssh, on its standard streams, until these are
//! closed. It trusts whoever started it: that is the user, who could do the same by hand.

mod jobs;
mod sync;

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use herd_core::JobId;
use herd_jobdir::Home;
use herd_login::protocol::{Hello, PROTOCOL, Refusal, Reply, Request, read_request};
use herd_login::{program, workdir};
use herd_workdir::Tree;
use serde::Serialize;

use super::Outcome;
use super::doctor::{Finding, cluster};
use super::get;
use crate::cli::machine::RawArgs;
use crate::config::SlurmBackend;
use crate::error::ExpectedError;
use crate::jobs::Job;
use crate::jobs::open_home;

/// Answers requests.
pub(crate) fn run(args: &RawArgs, home: Option<&Path>) -> Outcome {
    let home = open_home(home)?;
    let mark = args
        .args
        .first()
        .map(|mark| mark.to_string_lossy().into_owned());
    let failed = |error: io::Error| ExpectedError::failed("answer over ssh", error);
    if let Some(request) = args.args.get(1) {
        // With a terminal, whose streams carry nothing else.
        let bytes = unhex(&request.to_string_lossy());
        let request = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let Some(Request::Herd { args }) = request else {
            return Err(failed(io::Error::from(ErrorKind::InvalidInput)));
        };
        return Err(failed(become_herd(&home, &args)));
    }
    greet(&home, mark.as_deref().unwrap_or_default()).map_err(failed)?;
    // Not buffered: what follows a request may be another's.
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    let mut input = File::from(input);
    loop {
        let request = match read_request(&mut input) {
            Ok(request) => request,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
            Err(error) => return Err(failed(error)),
        };
        match answer(&home, request, &mut input) {
            Ok(()) => {}
            // Nobody listens any more.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(0),
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Says on both streams where the answer begins.
fn greet(home: &Home, mark: &str) -> io::Result<()> {
    let hello = Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        home: home.path().display().to_string(),
    };
    io::stderr().write_all(format!("\n{mark} \n").as_bytes())?;
    let hello = serde_json::to_string(&hello)?;
    let mut out = io::stdout();
    out.write_all(format!("\n{mark} {hello}\n").as_bytes())?;
    out.flush()
}

fn answer(home: &Home, request: Request, input: &mut File) -> io::Result<()> {
    match request {
        Request::Install { hash } => say(&install(&hash)),
        Request::Check(job) => say(&jobs::check(job)),
        Request::Render(job) => say(&jobs::render(home, job)),
        Request::Submit {
            job,
            secrets,
            job_yaml,
        } => say(&jobs::submit(home, job, secrets.0, job_yaml)),
        Request::Workdir { job } => {
            let received =
                jobs::workdir(home, job).and_then(|place| workdir::receive(&mut *input, &place));
            // The pieces that were not read stand between this request and the next one.
            let broken = received.is_err();
            say(&received.map_err(|error| refused(&format!("the directory of work: {error}"))))?;
            if broken {
                return Err(io::Error::from(ErrorKind::BrokenPipe));
            }
            Ok(())
        }
        Request::Fetch { job } => fetch(home, job),
        Request::Sync { jobs, log, follow } => sync::run(home, jobs, log, follow),
        Request::Herd { args } => Err(become_herd(home, &args)),
        Request::Doctor {
            options: [cluster, partition, account, qos],
        } => {
            let backend = SlurmBackend {
                cluster,
                partition,
                account,
                qos,
                ..SlurmBackend::default()
            };
            say(&Reply::<Vec<Finding>>::Ok(cluster::of(
                &backend,
                Some(home.path()),
            )))
        }
    }
}

fn fetch(home: &Home, id: JobId) -> io::Result<()> {
    let mut out = io::stdout();
    let job = home
        .open(id)
        .ok()
        .and_then(|dir| crate::jobs::read(dir).ok());
    if let Some(job) = job.filter(Job::is_staged) {
        // It worked on its nodes, and what it has left there came back.
        let archive = get::archive(&job).map_err(|error| refused(&error.to_string()));
        let opened = archive.and_then(|path| {
            let file = File::open(path);
            file.and_then(|file| Ok((file.metadata()?.len(), file)))
                .map_err(|error| refused(&error.to_string()))
        });
        say(&opened.as_ref().map(|(bytes, _)| bytes))?;
        if let Ok((_, mut archive)) = opened {
            workdir::copy_pieces(&mut archive, |bytes| out.write_all(bytes))?;
        }
        return out.flush();
    }
    let place = home.path().join("workdirs").join(id.to_string());
    let found =
        Tree::all(&place).map_err(|error| refused(&format!("{}: {error}", place.display())));
    say(&found.as_ref().map(|tree| tree.bytes))?;
    if let Ok(tree) = found {
        workdir::write_pieces(&tree, |bytes| out.write_all(bytes))?;
    }
    out.flush()
}

fn say<T: Serialize, E: Serialize>(reply: &Result<T, E>) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    let mut out = io::stdout();
    out.write_all(&line)?;
    out.flush()
}

/// A refusal without particulars.
pub(super) fn refused(text: &str) -> Refusal {
    Refusal {
        text: text.to_owned(),
        code: herd_core::exit::HERD_FAILED,
        ..Refusal::default()
    }
}

fn install(hash: &str) -> Reply<()> {
    let own = std::env::current_exe().map_err(|error| refused(&error.to_string()))?;
    let directory = own.parent().unwrap_or_else(|| Path::new("/"));
    program::take_into_use(directory, hash).map_err(|why| refused(&why))
}

/// Becomes herd with these arguments. Comes back only with the reason why not.
fn become_herd(home: &Home, args: &[String]) -> io::Error {
    match std::env::current_exe() {
        Ok(own) => Command::new(own)
            .arg("--home")
            .arg(home.path())
            .args(args)
            .exec(),
        Err(error) => error,
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}
