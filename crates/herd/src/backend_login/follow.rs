//! Follows jobs behind a login node: a thread keeps their mirrors up to date while a command reads them.
//! A connection that breaks is made again, with growing pauses, and goes on where it was.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use herd_core::JobId;
use herd_core::text::error_line;
use herd_jobdir::JobDir;
use herd_login::mirror::{self, Record};
use herd_login::program::HELLO_BOUND;
use herd_login::protocol::{Held, Reply, Request, ask, send};
use herd_login::workdir::{self, Incoming};
use herd_login::{Channel, LoginError, Target};

use super::look::{is_followed, set_followed, take, take_part};
use super::submit::wait;
use super::{ANSWER_BOUND, Login, failed, refused, target_of};
use crate::error::ExpectedError;
use crate::jobs::Job;

/// Pauses between tries: the first, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Follows those of these jobs that have not ended and are behind a login node; with `log` what they
/// print, too. The threads end with the jobs, or with the process. Of a job that has ended, whose end may
/// have been heard of without it, all that it has printed is here when this returns, or why not is said.
pub(crate) fn follow(jobs: &[&Job], log: bool) {
    let mut groups: Vec<(Target, Vec<JobDir>)> = Vec::new();
    for job in jobs {
        let Some(record) = &job.login else { continue };
        if job.is_ended() {
            if log && let Err(error) = fetch_log(job, record) {
                say(&error_line(&error));
            }
            continue;
        }
        let target = target_of(record);
        match groups.iter_mut().find(|(known, _)| *known == target) {
            Some((_, dirs)) => dirs.push(job.dir.clone()),
            None => groups.push((target, vec![job.dir.clone()])),
        }
    }
    for (target, dirs) in groups {
        let ids: Vec<JobId> = dirs.iter().map(JobDir::id).collect();
        set_followed(&ids, true);
        let thread = std::thread::Builder::new().name("login".to_owned());
        let of_thread = ids.clone();
        let started = thread.spawn(move || {
            keep_up(&target, &dirs, log);
            set_followed(&of_thread, false);
        });
        if started.is_err() {
            // Then each look asks for itself.
            set_followed(&ids, false);
        }
    }
}

/// Whether more of a job may come here although its end is: another process can have heard of that alone.
pub(crate) fn may_come(job: &Job) -> bool {
    job.login.is_some() && is_followed(job.dir.id())
}

/// Has all that an ended or running job has printed so far.
pub(crate) fn fetch_log(job: &Job, record: &Record) -> Result<(), ExpectedError> {
    let what = || format!("fetch the output from {}", record.target.host);
    let fetched = || -> Result<(), LoginError> {
        let (mut channel, _) = Login::of(record)?.start(HELLO_BOUND)?;
        let request = Request::Sync {
            jobs: vec![mirror::held(&job.dir)],
            log: true,
            follow: false,
        };
        send(&mut channel, &request)?;
        take(&mut channel, &[&job.dir])
    };
    fetched().map_err(|error| failed(what(), error))
}

/// Copies a job's directory of work to a new directory here; its bytes.
pub(crate) fn get(dir: &JobDir, record: &Record, to: &Path) -> Result<u64, ExpectedError> {
    let what = || format!("copy the job's files from {}", record.target.host);
    let asked = || -> Result<(Channel, Reply<u64>), LoginError> {
        let (mut channel, _) = Login::of(record)?.start(HELLO_BOUND)?;
        let reply = ask(
            &mut channel,
            &Request::Fetch { job: dir.id() },
            ANSWER_BOUND,
        )?;
        Ok((channel, reply))
    };
    let (mut channel, reply) = asked().map_err(|error| failed(what(), error))?;
    let bytes = reply.map_err(|refusal| refused(what(), refusal))?;
    workdir::receive(Incoming::new(&mut channel), to)
        .map_err(|error| ExpectedError::failed(what(), error))?;
    Ok(bytes)
}

fn keep_up(target: &Target, dirs: &[JobDir], log: bool) {
    let mut pause = PAUSE.0;
    let mut told = false;
    loop {
        let mut heard = false;
        let went = once(target, dirs, log, &mut || {
            if told {
                say(&format!("{} answers again", target.host));
            }
            told = false;
            heard = true;
        });
        let Err(error) = went else {
            return;
        };
        if heard {
            pause = PAUSE.0;
        }
        if !told {
            told = true;
            let hint = error.hint().map(|hint| format!("\nhint: {hint}"));
            say(&format!(
                "{}; the job goes on, and {} is tried again{}",
                error_line(&error),
                target.host,
                hint.unwrap_or_default()
            ));
        }
        wait(pause);
        pause = (pause * 2).min(PAUSE.1);
    }
}

/// One connection, from its beginning until the jobs have ended or it breaks.
fn once(
    target: &Target,
    dirs: &[JobDir],
    log: bool,
    heard: &mut dyn FnMut(),
) -> Result<(), LoginError> {
    let (mut channel, _) = Login::to(target)?.start(HELLO_BOUND)?;
    let held: Vec<Held> = dirs.iter().map(mirror::held).collect();
    let request = Request::Sync {
        jobs: held,
        log,
        follow: true,
    };
    send(&mut channel, &request)?;
    let dirs: Vec<&JobDir> = dirs.iter().collect();
    loop {
        let done = take_part(&mut channel, &dirs)?;
        heard();
        if done {
            return Ok(());
        }
    }
}

fn say(text: &str) {
    // A closed standard error leaves nobody to tell.
    drop(writeln!(std::io::stderr(), "herd: {text}"));
}
