//! Retention: which finished jobs go, and their removal.
//!
//! A job without a result is never removed, unless its driver is known to be dead: where no result can
//! be written, on a full disk, it would take its space for ever. Nothing outside the home is touched: links are removed,
//! not followed.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use herd_core::JobId;

use crate::error::JobDirError;
use crate::home::Home;
use crate::job::JobDir;
use crate::status::is_over;

/// Name given to a directory before it is emptied, so that no half of a job is ever listed.
const DOOMED: &str = ".deleted-";

/// Deepest directory looked into for sizes.
const DEEPEST: u32 = 32;

/// A job as retention sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The job.
    pub id: JobId,
    /// When it ended, milliseconds since the Unix epoch; absent while it has no result.
    pub ended_ms: Option<u64>,
    /// Space it takes on disk.
    pub bytes: u64,
}

/// How much is kept. Absent bounds do not apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_field_names,
    reason = "each field is a bound, and says so"
)]
pub struct Policy {
    /// Finished jobs older than this go, milliseconds since their end.
    pub max_age_ms: Option<u64>,
    /// Jobs kept, unfinished ones counted.
    pub max_jobs: Option<usize>,
    /// Space kept, unfinished jobs counted.
    pub max_bytes: Option<u64>,
}

/// What was removed.
#[derive(Debug, Default)]
pub struct Removed {
    /// Jobs removed.
    pub jobs: Vec<JobId>,
    /// Jobs that could not be removed, and why.
    pub failed: Vec<(JobId, JobDirError)>,
}

/// Which jobs go, oldest end first. Pure.
pub fn plan(jobs: &[Kept], policy: &Policy, now_ms: u64) -> Vec<JobId> {
    let mut finished: Vec<(u64, &Kept)> = jobs
        .iter()
        .filter_map(|job| Some((job.ended_ms?, job)))
        .collect();
    finished.sort_by_key(|(ended, job)| (*ended, job.id));
    let mut count = jobs.len();
    let mut bytes: u64 = jobs
        .iter()
        .fold(0, |sum, job| sum.saturating_add(job.bytes));
    let mut doomed = Vec::new();
    for (ended_ms, job) in finished {
        let old = policy
            .max_age_ms
            .is_some_and(|max| now_ms.saturating_sub(ended_ms) > max);
        let many = policy.max_jobs.is_some_and(|max| count > max);
        let large = policy.max_bytes.is_some_and(|max| bytes > max);
        if old || many || large {
            doomed.push(job.id);
            count -= 1;
            bytes = bytes.saturating_sub(job.bytes);
        }
    }
    doomed
}

/// All jobs of a home with their ends and sizes.
pub fn survey(home: &Home) -> Result<Vec<Kept>, JobDirError> {
    let mut jobs = Vec::new();
    for id in home.jobs()? {
        let Ok(job) = home.open(id) else { continue };
        // What cannot be read is no proof of an end: the job is kept.
        let ended_ms = match job.read_result() {
            Ok(Some(result)) => Some(result.ended_ms),
            Ok(None) if is_over(&job).unwrap_or(false) => last_written_ms(&job),
            Ok(None) | Err(_) => None,
        };
        jobs.push(Kept {
            id,
            ended_ms,
            bytes: disk_usage(job.path(), DEEPEST),
        });
    }
    Ok(jobs)
}

/// When the latest attempt's directory was last written to, in place of an end that nobody wrote.
fn last_written_ms(job: &JobDir) -> Option<u64> {
    let attempt = job.latest_attempt().ok()??;
    let written = fs::metadata(attempt.path()).ok()?.modified().ok()?;
    let since_epoch = written.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since_epoch.as_millis()).ok()
}

/// Removes these jobs, and what an earlier removal left half done.
pub fn execute(home: &Home, jobs: &[JobId]) -> Result<Removed, JobDirError> {
    let directory = home.jobs_dir();
    match fs::symlink_metadata(&directory) {
        Ok(meta) if meta.is_dir() => {}
        Ok(_) => {
            return Err(JobDirError::HomeRefused {
                path: directory,
                reason: "a link is not followed for removal",
            });
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Removed::default()),
        Err(error) => return Err(JobDirError::io("look at", &directory, error)),
    }
    let mut removed = Removed::default();
    for id in jobs {
        let path = directory.join(id.to_string());
        let doomed = directory.join(format!("{DOOMED}{id}"));
        let outcome = fs::rename(&path, &doomed)
            .map_err(JobDirError::at("rename", &path))
            .and_then(|()| remove(&doomed));
        match outcome {
            Ok(()) => removed.jobs.push(*id),
            Err(error) => removed.failed.push((*id, error)),
        }
    }
    sweep(&directory);
    Ok(removed)
}

/// Space a directory takes. Links are counted, not followed; what cannot be read counts nothing.
pub fn disk_usage(path: &Path, depth: u32) -> u64 {
    let Ok(meta) = fs::symlink_metadata(path) else {
        return 0;
    };
    let own = meta.blocks().saturating_mul(512);
    if !meta.is_dir() || depth == 0 {
        return own;
    }
    let Ok(entries) = fs::read_dir(path) else {
        return own;
    };
    entries.flatten().fold(own, |sum, entry| {
        sum.saturating_add(disk_usage(&entry.path(), depth - 1))
    })
}

fn remove(path: &Path) -> Result<(), JobDirError> {
    // The standard library removes by directory descriptors and never through a link.
    fs::remove_dir_all(path).map_err(JobDirError::at("remove", path))
}

fn sweep(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(DOOMED) {
            // What cannot be removed now is tried again by the next collection.
            drop(remove(&entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(list: &[(Option<u64>, u64)]) -> Vec<Kept> {
        list.iter()
            .map(|(ended_ms, bytes)| Kept {
                id: JobId::generate(),
                ended_ms: *ended_ms,
                bytes: *bytes,
            })
            .collect()
    }

    #[test]
    fn each_bound_removes_the_oldest_ends_and_no_more() {
        let all = jobs(&[(Some(10), 5), (Some(30), 5), (Some(20), 5), (None, 5)]);
        let by = |policy: Policy| plan(&all, &policy, 100);
        assert!(by(Policy::default()).is_empty());
        let age = Policy {
            max_age_ms: Some(75),
            ..Policy::default()
        };
        assert_eq!(by(age), [all[0].id, all[2].id]);
        assert_eq!(
            by(Policy {
                max_jobs: Some(3),
                ..Policy::default()
            }),
            [all[0].id]
        );
        assert_eq!(
            by(Policy {
                max_bytes: Some(10),
                ..Policy::default()
            }),
            [all[0].id, all[2].id]
        );
    }

    #[test]
    fn unfinished_jobs_stay_whatever_the_policy() {
        let all = jobs(&[(None, 1 << 40), (None, 1), (Some(1), 1)]);
        let policy = Policy {
            max_age_ms: Some(0),
            max_jobs: Some(0),
            max_bytes: Some(0),
        };
        assert_eq!(plan(&all, &policy, u64::MAX), [all[2].id]);
    }

    #[test]
    fn removal_follows_no_link_and_finishes_an_earlier_one() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path().join("home")).unwrap();
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("precious"), "x").unwrap();
        let job = home.create(JobId::generate()).unwrap();
        std::os::unix::fs::symlink(&outside, job.path().join("link")).unwrap();
        fs::create_dir(home.jobs_dir().join(format!("{DOOMED}x"))).unwrap();
        let linked = JobId::generate();
        std::os::unix::fs::symlink(&outside, home.jobs_dir().join(linked.to_string())).unwrap();

        let removed = execute(&home, &[job.id(), linked, JobId::generate()]).unwrap();
        assert!(removed.jobs.contains(&job.id()));
        assert!(outside.join("precious").exists());
        assert!(home.jobs().unwrap().is_empty() || home.open(linked).is_err());
        assert!(
            !fs::read_dir(home.jobs_dir())
                .unwrap()
                .flatten()
                .any(|e| e.file_name().to_string_lossy() == format!("{DOOMED}x"))
        );
    }

    #[test]
    fn survey_sees_sizes_and_no_end_where_there_is_no_result() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path().join("home")).unwrap();
        let job = home.create(JobId::generate()).unwrap();
        fs::write(job.path().join("run.log"), vec![7; 100_000]).unwrap();
        let seen = survey(&home).unwrap();
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].ended_ms, None);
        assert!(seen[0].bytes >= 100_000);
    }
}
