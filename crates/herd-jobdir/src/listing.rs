//! All jobs of a home: what `herd ls` shows of them, and which one a person means.

use herd_core::JobId;
use serde::Serialize;

use crate::error::JobDirError;
use crate::home::Home;
use crate::index::{self, Entry};
use crate::select::{self, SelectError};
use crate::status::{Brief, status};
use crate::summary::Summary;

/// The index is written anew when it has this many times more lines than jobs.
const SLACK: usize = 4;

/// One line of `herd ls`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// The job.
    pub id: JobId,
    /// Its summary.
    #[serde(flatten)]
    pub summary: Summary,
    /// Where it stands.
    #[serde(flatten)]
    pub brief: Brief,
}

/// The newest `limit` jobs and where they stand. Jobs whose state cannot be read are left out.
pub fn list(home: &Home, limit: usize) -> Result<Vec<Listed>, JobDirError> {
    let mut listed = Vec::new();
    let mut settled = Vec::new();
    for entry in entries(home)?.into_iter().take(limit) {
        let brief = if let Some(brief) = entry.settled.clone() {
            brief
        } else {
            let Ok(now) = home.open(entry.id).and_then(|job| status(&job)) else {
                continue;
            };
            if now.brief.settled {
                settled.push(Entry {
                    settled: Some(now.brief.clone()),
                    ..entry.clone()
                });
            }
            now.brief
        };
        listed.push(Listed {
            id: entry.id,
            summary: entry.summary,
            brief,
        });
    }
    index::note(home.path(), &settled);
    Ok(listed)
}

/// The job a person means: a full id, its end or beginning (at least 4 hex digits), a name
/// (the newest so called), or `last`.
pub fn select(home: &Home, text: &str) -> Result<JobId, SelectError> {
    if let Ok(id) = text.parse::<JobId>() {
        return match home.open(id) {
            Ok(_) => Ok(id),
            Err(JobDirError::NoSuchJob(_)) => Err(SelectError::NotFound {
                text: text.to_owned(),
                nearest: Vec::new(),
            }),
            Err(error) => Err(SelectError::Unreadable(error)),
        };
    }
    let entries = entries(home).map_err(SelectError::Unreadable)?;
    let jobs: Vec<(JobId, &str)> = entries
        .iter()
        .map(|entry| (entry.id, entry.summary.name.as_str()))
        .collect();
    select::select(&jobs, text)
}

/// All jobs that have a summary, newest first.
fn entries(home: &Home) -> Result<Vec<Entry>, JobDirError> {
    let ids = home.jobs()?;
    let mut known = index::read(home.path())?;
    let mut all = Vec::with_capacity(ids.len());
    let mut missing = Vec::new();
    for id in ids {
        if let Some(entry) = known.entries.remove(&id) {
            all.push(entry);
        } else if let Some(summary) = read_summary(home, id) {
            let entry = Entry {
                id,
                summary,
                settled: None,
            };
            missing.push(entry.clone());
            all.push(entry);
        }
    }
    if known.lines > SLACK * all.len().max(16) {
        index::rewrite(home.path(), &all);
    } else {
        index::note(home.path(), &missing);
    }
    Ok(all)
}

fn read_summary(home: &Home, id: JobId) -> Option<Summary> {
    home.open(id).ok()?.read_summary().ok()?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Durability;
    use crate::job::JobDir;
    use herd_core::result::JobResult;
    use herd_core::spec::JobType;
    use herd_core::state::JobState;

    fn home(dir: &tempfile::TempDir) -> Home {
        Home::at(dir.path().join("home")).unwrap()
    }

    fn summary(name: &str) -> Summary {
        Summary {
            name: name.to_owned(),
            job_type: JobType::Pytorch,
            nodes: 2,
            created_ms: 7,
            backend: String::from("local"),
            command: String::from("python train.py"),
        }
    }

    fn add(home: &Home, name: &str) -> JobDir {
        let job = home.create(JobId::generate()).unwrap();
        job.write_summary(&summary(name)).unwrap();
        job
    }

    fn succeed(job: &JobDir) {
        let result = JobResult {
            state: JobState::Succeeded,
            rejection: None,
            reason: None,
            failure: None,
            exit_code: 0,
            attempts: 1,
            ended_ms: 5,
            tasks: None,
        };
        job.write_result(&result, Durability::Process).unwrap();
    }

    #[test]
    fn a_job_is_found_by_its_name_its_id_and_as_the_last() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(&dir);
        let ids = ["train", "digits", "train"].map(|name| add(&home, name).id());
        for (text, id) in [
            ("train", ids[2]),
            ("last", ids[2]),
            (&ids[0].short(), ids[0]),
            (&ids[1].to_string(), ids[1]),
        ] {
            assert_eq!(select(&home, text).unwrap(), id, "{text}");
        }
        let absent = select(&home, &JobId::generate().to_string());
        assert!(matches!(absent, Err(SelectError::NotFound { .. })));
    }

    #[test]
    fn a_missing_or_spoilt_index_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(&dir);
        let (a, b) = (add(&home, "a"), add(&home, "b"));
        let want = entries(&home).unwrap();
        assert_eq!(
            want.iter().map(|e| e.id).collect::<Vec<_>>(),
            [b.id(), a.id()]
        );
        let path = index::path(home.path());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(entries(&home).unwrap(), want);
        assert!(path.exists());
        std::fs::write(&path, b"\0garbage\n{\"id\":1}\n{\"id\":\"0").unwrap();
        assert_eq!(entries(&home).unwrap(), want);
        std::fs::remove_dir_all(a.path()).unwrap();
        assert_eq!(entries(&home).unwrap().len(), 1);
    }

    #[test]
    fn a_final_state_is_noted_and_not_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(&dir);
        let (done, open) = (add(&home, "done"), add(&home, "open"));
        succeed(&done);
        let listed = list(&home, 10).unwrap();
        assert_eq!(listed[0].brief.state, "ACCEPTED");
        assert_eq!(listed[1].brief.state, "SUCCEEDED");
        // The note alone answers now.
        std::fs::remove_file(done.path().join("result.json")).unwrap();
        assert_eq!(list(&home, 10).unwrap()[1].brief.state, "SUCCEEDED");
        // A later summary does not take it back.
        done.write_summary(&summary("done")).unwrap();
        assert_eq!(list(&home, 10).unwrap()[1].brief.state, "SUCCEEDED");
        assert_eq!(list(&home, 1).unwrap()[0].id, open.id());
        let json = serde_json::to_value(&listed[1]).unwrap();
        assert_eq!(
            (&json["type"], &json["state"]),
            (&"pytorch".into(), &"SUCCEEDED".into())
        );
    }

    #[test]
    fn an_index_that_outgrew_its_jobs_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(&dir);
        let job = add(&home, "a");
        for _ in 0..100 {
            job.write_summary(&summary("a")).unwrap();
        }
        entries(&home).unwrap();
        let text = std::fs::read_to_string(index::path(home.path())).unwrap();
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn a_thousand_jobs_are_listed_within_the_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(&dir);
        for _ in 0..1000 {
            succeed(&add(&home, "many"));
        }
        list(&home, 1000).unwrap();
        let began = std::time::Instant::now();
        assert_eq!(list(&home, 1000).unwrap().len(), 1000);
        let took = began.elapsed();
        assert!(took.as_millis() < 500, "{took:?}");
    }
}
