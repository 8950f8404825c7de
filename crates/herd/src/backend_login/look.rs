//! Where jobs behind login nodes stand: one question for all of a login node, none while it is followed,
//! and what was heard last where it does not answer (I3).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use herd_core::JobId;
use herd_core::result::{JobResult, Rejection};
use herd_core::state::{JobState, RejectionKind};
use herd_core::text::error_line;
use herd_jobdir::listing::Listed;
use herd_jobdir::status::Brief;
use herd_jobdir::{Home, JobDir};
use herd_login::hex_digest;
use herd_login::mirror::{self, Facts, Record};
use herd_login::protocol::{Held, Part, Request, receive, send};
use herd_login::{Channel, LoginError, Target};

use super::{Login, cache, target_of};
use crate::backends::LOCAL;
use crate::text;

/// How long a login node may take to answer somebody who only looks.
const HELLO: Duration = Duration::from_secs(10);
/// How long the answer may pause.
const PAUSE: Duration = Duration::from_secs(20);
/// How long an answer stands within one command.
const STANDS: Duration = Duration::from_secs(1);
/// A login node that did not answer is not asked again for so long by those who only look.
const DOWN_MS: u64 = 15_000;
/// What is heard while it is followed comes at least this often.
const OLD_MS: u64 = 15_000;
/// A submission that nobody heard of, and of which the login node knows nothing, is given up after this.
const LOST_MS: u64 = 15 * 60 * 1000;

/// What this process has asked for, and when.
#[derive(Debug, Default)]
struct Asked {
    jobs: BTreeMap<JobId, Instant>,
    followed: BTreeSet<JobId>,
    complaints: BTreeMap<String, String>,
}

static ASKED: Mutex<Option<Asked>> = Mutex::new(None);

fn asked<T>(action: impl FnOnce(&mut Asked) -> T) -> T {
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    action(asked.get_or_insert_default())
}

/// Notes that somebody follows these jobs, or no longer does.
pub(super) fn set_followed(jobs: &[JobId], followed: bool) {
    asked(|asked| {
        for job in jobs {
            if followed {
                asked.followed.insert(*job);
            } else {
                asked.followed.remove(job);
                asked.jobs.insert(*job, Instant::now());
            }
        }
    });
}

/// Whether somebody follows the job.
pub(super) fn is_followed(job: JobId) -> bool {
    asked(|asked| asked.followed.contains(&job))
}

/// What is to be said of login nodes that did not answer.
pub(crate) fn complaints() -> Vec<String> {
    asked(|asked| {
        std::mem::take(&mut asked.complaints)
            .into_values()
            .collect()
    })
}

/// Has the mirror of a job brought up to date. Where that cannot be done: since when it has not been.
pub(crate) fn look(dir: &JobDir, record: &Record) -> Option<u64> {
    let id = dir.id();
    let followed = is_followed(id);
    let fresh = asked(|asked| asked.jobs.get(&id).is_some_and(|at| at.elapsed() < STANDS));
    if !fresh && !followed {
        ask_all(vec![(dir.clone(), record.clone())]);
    }
    let heard = Facts::read(dir).map_or(record.submitted_ms, |facts| facts.asked_ms);
    let age = text::now_ms().saturating_sub(heard);
    // Who follows it hears of it all the time; others, when they asked.
    let heard_now = |asked: &mut Asked| {
        let at = asked.jobs.get(&id);
        at.is_some_and(|at| at.elapsed() < STANDS * 5)
    };
    let old = age > OLD_MS || !(followed || asked(heard_now));
    old.then_some(heard)
}

/// Asks once for all of a list that have not ended.
pub(crate) fn look_at_all(home: &Home, listed: &[Listed]) {
    let jobs = listed
        .iter()
        .filter(|job| !job.brief.settled && job.summary.backend != LOCAL)
        .filter_map(|job| {
            let dir = home.open(job.id).ok()?;
            let record = Record::read(&dir).ok()??;
            Some((dir, record))
        })
        .collect();
    ask_all(jobs);
}

/// Puts what was heard into a status where the mirrored files say less.
pub(crate) fn tell(brief: &mut Brief, dir: &JobDir, record: &Record) {
    if brief.settled {
        return;
    }
    let host = &record.target.host;
    match Facts::read(dir) {
        Some(Facts {
            brief: Some(heard), ..
        }) => {
            *brief = Brief {
                // The result is what settles a job; it is not here yet.
                settled: false,
                ..heard
            };
        }
        Some(Facts { brief: None, .. }) if record.number.is_some() => {
            brief.why = Some(format!("{host} no longer has its directory"));
        }
        Some(_) | None if record.number.is_none() => {
            brief.state = JobState::Submitting.to_string();
            brief.why = Some(format!("{host} has not said that it arrived"));
        }
        Some(_) | None => {}
    }
}

fn ask_all(jobs: Vec<(JobDir, Record)>) {
    let mut by_target: BTreeMap<String, (Target, Vec<(JobDir, Record)>)> = BTreeMap::new();
    for (dir, record) in jobs {
        let target = target_of(&record);
        let key = format!("{target:?}");
        let (_, of) = by_target.entry(key).or_insert_with(|| (target, Vec::new()));
        of.push((dir, record));
    }
    for (target, jobs) in by_target.into_values() {
        if is_down(&target) {
            complain(&target, "it did not answer a moment ago");
            continue;
        }
        match ask_one(&target, &jobs) {
            Ok(()) => {
                drop(std::fs::remove_file(down_file(&target)));
                asked(|asked| {
                    let now = Instant::now();
                    asked
                        .jobs
                        .extend(jobs.iter().map(|(dir, _)| (dir.id(), now)));
                });
            }
            Err(error) => {
                note_down(&target);
                complain(&target, &error_line(&error));
            }
        }
    }
}

fn complain(target: &Target, why: &str) {
    let text = format!(
        "{} cannot be asked just now ({why}); its jobs go on, and stand as it said last",
        target.host
    );
    asked(|asked| {
        asked.complaints.entry(target.host.clone()).or_insert(text);
    });
}

fn ask_one(target: &Target, jobs: &[(JobDir, Record)]) -> Result<(), LoginError> {
    let (mut channel, _) = Login::to(target)?.start(HELLO)?;
    let held: Vec<Held> = jobs.iter().map(|(dir, _)| mirror::held(dir)).collect();
    let request = Request::Sync {
        jobs: held,
        log: false,
        follow: false,
    };
    send(&mut channel, &request)?;
    let dirs: Vec<&JobDir> = jobs.iter().map(|(dir, _)| dir).collect();
    take(&mut channel, &dirs)?;
    for (dir, record) in jobs {
        give_up_lost(dir, record);
    }
    Ok(())
}

/// Takes one answer to its end.
pub(super) fn take(channel: &mut Channel, jobs: &[&JobDir]) -> Result<(), LoginError> {
    while !take_part(channel, jobs)? {}
    Ok(())
}

/// Takes one part of an answer; whether it was the last.
pub(super) fn take_part(channel: &mut Channel, jobs: &[&JobDir]) -> Result<bool, LoginError> {
    let part: Part = receive(channel, PAUSE)?;
    let of = |id: JobId| jobs.iter().find(|dir| dir.id() == id);
    match &part {
        Part::File {
            job, length, path, ..
        } => {
            if *length > herd_login::protocol::MOST {
                return Err(channel.misunderstood("a piece of a file is too long"));
            }
            let bytes = channel.bytes(*length, PAUSE)?;
            if let Some(dir) = of(*job) {
                mirror::put(dir, &part, &bytes).map_err(|source| {
                    LoginError::here(format!("keep {path} of {}", job.short()), source)
                })?;
            }
        }
        Part::Stands { job, brief } => {
            if let Some(dir) = of(*job) {
                Facts {
                    asked_ms: text::now_ms(),
                    brief: brief.clone(),
                }
                .write(dir);
            }
        }
        Part::Tick => {
            for dir in jobs {
                if let Some(facts) = Facts::read(dir) {
                    Facts {
                        asked_ms: text::now_ms(),
                        ..facts
                    }
                    .write(dir);
                }
            }
        }
        Part::Done => return Ok(true),
    }
    Ok(false)
}

/// Forgets a submission that did not arrive: the login node says that it has no such job, and whoever
/// sent it has long stopped trying.
fn give_up_lost(dir: &JobDir, record: &Record) {
    let age = text::now_ms().saturating_sub(record.submitted_ms);
    let unknown = Facts::read(dir).is_some_and(|facts| facts.brief.is_none());
    if record.number.is_some() || !unknown || age < LOST_MS {
        return;
    }
    let result = JobResult {
        state: JobState::Rejected,
        rejection: Some(Rejection {
            kind: RejectionKind::BackendRejected,
            detail: format!("it did not reach {}", record.target.host),
        }),
        reason: None,
        failure: None,
        exit_code: herd_core::exit::HERD_FAILED,
        attempts: 0,
        ended_ms: text::now_ms(),
        tasks: None,
    };
    drop(dir.write_result(&result, herd_jobdir::Durability::Process));
}

/// A file that says that a login node did not answer, and when.
fn down_file(target: &Target) -> PathBuf {
    let digest = hex_digest(format!("{target:?}").as_bytes());
    cache().join(format!("down-{}", digest.get(..16).unwrap_or_default()))
}

fn is_down(target: &Target) -> bool {
    let written = std::fs::read_to_string(down_file(target)).ok();
    let since = written.and_then(|text| text.trim().parse::<u64>().ok());
    since.is_some_and(|at| (0..DOWN_MS).contains(&text::now_ms().saturating_sub(at)))
}

fn note_down(target: &Target) {
    let path = down_file(target);
    // Only a cache: without it the next command asks, and waits.
    if let Some(parent) = path.parent() {
        drop(std::fs::create_dir_all(parent));
    }
    drop(std::fs::write(path, text::now_ms().to_string()));
}
