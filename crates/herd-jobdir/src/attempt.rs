//! `attempts/<n>/`: everything one run of a job leaves behind.
//!
//! The driver of the attempt is the only writer; `owner` decides which driver that is.

use std::path::{Path, PathBuf};

use herd_core::plan::Plan;
use herd_core::result::AttemptEnd;
use serde::{Deserialize, Serialize};

use crate::driver::DriverInfo;
use crate::error::JobDirError;
use crate::events::{EventWriter, read_events};
use crate::files::{self, Durability};
use crate::reserve::Reserve;

/// Longest node name taken as a directory name.
const NODE_NAME_BYTES: usize = 200;

/// Most bytes of events that are read at once.
const EVENT_READ_BYTES: u64 = 4 << 20;

/// The directory of one attempt.
#[derive(Clone, Debug)]
pub struct AttemptDir {
    path: PathBuf,
    number: u32,
}

/// Files of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankLogs {
    /// What it wrote to stdout, byte for byte (I7).
    pub stdout: PathBuf,
    /// What it wrote to stderr, byte for byte (I7).
    pub stderr: PathBuf,
    /// What it says about its own failure.
    pub error: PathBuf,
}

/// Content of `owner`.
#[derive(Serialize, Deserialize)]
struct Owner {
    backend_id: String,
    /// Who claimed it, so that a driver that died before it wrote `driver.json` is found out.
    process: DriverInfo,
}

impl AttemptDir {
    pub(crate) fn new(path: PathBuf, number: u32) -> Self {
        Self { path, number }
    }

    /// Makes the directory; one that exists is left alone.
    pub fn create(&self) -> Result<(), JobDirError> {
        files::create_dir(&self.path)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of the attempt, from 1.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Writes the plan, once.
    pub fn write_plan(&self, plan: &Plan, durability: Durability) -> Result<(), JobDirError> {
        let path = self.path.join("plan.json");
        files::write_once(&path, &files::json_line(&path, plan)?, durability)
    }

    /// The plan, where it was written.
    pub fn read_plan(&self) -> Result<Option<Plan>, JobDirError> {
        files::read_json(&self.path.join("plan.json"))
    }

    /// Takes the attempt for this process, before it starts anything. The second copy of a
    /// submission gets [`JobDirError::AlreadyOwned`] with the first one's backend id (I2).
    pub fn claim_owner(&self, backend_id: &str) -> Result<(), JobDirError> {
        let path = self.path.join("owner");
        let owner = Owner {
            backend_id: backend_id.to_owned(),
            process: DriverInfo::of_this_process(String::new()),
        };
        match files::write_once(
            &path,
            &files::json_line(&path, &owner)?,
            Durability::Process,
        ) {
            Err(JobDirError::AlreadyWritten(_)) => {
                let holder: Option<Owner> = files::read_json(&path)?;
                Err(JobDirError::AlreadyOwned(
                    holder.map(|o| o.backend_id).unwrap_or_default(),
                ))
            }
            other => other,
        }
    }

    /// Backend id of the owner, where there is one.
    pub fn read_owner(&self) -> Result<Option<String>, JobDirError> {
        let owner: Option<Owner> = files::read_json(&self.path.join("owner"))?;
        Ok(owner.map(|owner| owner.backend_id))
    }

    /// The process that owns the attempt: from `driver.json`, or before that is written, `owner`.
    pub(crate) fn process(&self) -> Result<Option<DriverInfo>, JobDirError> {
        if let Some(driver) = self.read_driver()? {
            return Ok(Some(driver));
        }
        let owner: Option<Owner> = files::read_json(&self.path.join("owner"))?;
        Ok(owner.map(|owner| owner.process))
    }

    /// Says where the driver is to be reached.
    pub fn write_driver(&self, driver: &DriverInfo) -> Result<(), JobDirError> {
        let path = self.path.join("driver.json");
        files::write_atomic(
            &path,
            &files::json_line(&path, driver)?,
            Durability::Process,
        )
    }

    /// Where the driver is to be reached, once it said so.
    pub fn read_driver(&self) -> Result<Option<DriverInfo>, JobDirError> {
        files::read_json(&self.path.join("driver.json"))
    }

    /// Opens `events.jsonl` for appending.
    pub fn event_writer(&self) -> Result<EventWriter, JobDirError> {
        EventWriter::open(&self.path.join("events.jsonl"))
    }

    /// All events so far.
    pub fn read_events(&self) -> Result<Vec<herd_core::event::Event>, JobDirError> {
        read_events(&self.path.join("events.jsonl"))
    }

    /// Events after a place in the file, and the place to go on from; 0 is the beginning. Nothing
    /// more is there for now where the place stays the same.
    pub fn read_events_after(
        &self,
        offset: u64,
    ) -> Result<(Vec<herd_core::event::Event>, u64), JobDirError> {
        let path = self.path.join("events.jsonl");
        files::read_lines_after(&path, offset, EVENT_READ_BYTES)
    }

    /// Writes the one terminal event (I1); a second write is [`JobDirError::AlreadyWritten`].
    pub fn write_end(&self, end: &AttemptEnd, durability: Durability) -> Result<(), JobDirError> {
        let path = self.path.join("end");
        files::write_once(&path, &files::json_line(&path, end)?, durability)
    }

    /// Holds space back for the last records of the attempt.
    pub fn reserve(&self) -> Reserve {
        Reserve::hold(&self.path)
    }

    /// How the attempt ended, once it did.
    pub fn read_end(&self) -> Result<Option<AttemptEnd>, JobDirError> {
        files::read_json(&self.path.join("end"))
    }

    /// `nodes/<node>/setup.log`, with its directory made. The name comes from outside and must be
    /// a plain file name.
    pub fn setup_log(&self, node_name: &str) -> Result<PathBuf, JobDirError> {
        let plain = !node_name.is_empty()
            && node_name.len() <= NODE_NAME_BYTES
            && !node_name.starts_with('.')
            && !node_name.contains(['/', '\0']);
        if !plain {
            return Err(JobDirError::BadName(node_name.to_owned()));
        }
        let directory = self.path.join("nodes").join(node_name);
        files::create_dir(&directory)?;
        Ok(directory.join("setup.log"))
    }

    /// `ranks/<rank>`.
    pub fn rank_dir(&self, rank: u32) -> PathBuf {
        self.path.join("ranks").join(rank.to_string())
    }

    /// Makes `ranks/<rank>` and names its files.
    pub fn create_rank(&self, rank: u32) -> Result<RankLogs, JobDirError> {
        files::create_dir(&self.rank_dir(rank))?;
        Ok(self.rank_logs(rank))
    }

    /// Names the files of a rank.
    pub fn rank_logs(&self, rank: u32) -> RankLogs {
        let directory = self.rank_dir(rank);
        RankLogs {
            stdout: directory.join("stdout.log"),
            stderr: directory.join("stderr.log"),
            error: directory.join("error.json"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use herd_core::state::AttemptState;

    fn attempt(dir: &tempfile::TempDir) -> AttemptDir {
        let attempt = AttemptDir::new(dir.path().join("attempts/1"), 1);
        attempt.create().unwrap();
        attempt
    }

    #[test]
    fn i2_the_second_owner_is_told_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let attempt = attempt(&dir);
        attempt.claim_owner("slurm 42").unwrap();
        match attempt.claim_owner("slurm 43") {
            Err(JobDirError::AlreadyOwned(owner)) => assert_eq!(owner, "slurm 42"),
            other => panic!("{other:?}"),
        }
        assert_eq!(attempt.process().unwrap().unwrap().pid, std::process::id());
        assert_eq!(attempt.read_driver().unwrap(), None);
    }

    #[test]
    fn i1_of_many_writers_of_the_end_one_wins() {
        let dir = tempfile::tempdir().unwrap();
        let attempt = attempt(&dir);
        let won = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..8u8)
                .map(|exit_code| {
                    let attempt = &attempt;
                    scope.spawn(move || {
                        let end = AttemptEnd {
                            why: None,
                            state: AttemptState::Failed,
                            failure: None,
                            exit_code,
                            ended_ms: 1,
                            ranks: Vec::new(),
                        };
                        attempt
                            .write_end(&end, Durability::Process)
                            .is_ok()
                            .then_some(exit_code)
                    })
                })
                .collect();
            writers
                .into_iter()
                .filter_map(|writer| writer.join().unwrap())
                .collect::<Vec<_>>()
        });
        assert_eq!(won.len(), 1);
        assert_eq!(attempt.read_end().unwrap().unwrap().exit_code, won[0]);
    }

    #[test]
    fn node_names_from_outside_stay_beneath_the_attempt() {
        let dir = tempfile::tempdir().unwrap();
        let attempt = attempt(&dir);
        for name in ["", ".", "..", "../x", "a/b", ".hidden", "a\0b"] {
            assert!(
                matches!(attempt.setup_log(name), Err(JobDirError::BadName(_))),
                "{name:?}"
            );
        }
        let log = attempt.setup_log("node-1.cluster").unwrap();
        assert!(log.parent().unwrap().is_dir());
        assert!(
            attempt
                .create_rank(3)
                .unwrap()
                .stdout
                .ends_with("ranks/3/stdout.log")
        );
        assert!(attempt.rank_dir(3).is_dir());
    }
}
