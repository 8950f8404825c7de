//! A home of its own for each test, and jobs written into it as a driver would.

use assert_cmd::Command;
use herd_core::JobId;
use herd_core::event::{Event, EventKind};
use herd_core::exit::ProcessEnd;
use herd_core::result::{AttemptEnd, Failure, JobResult, RankError, RankResult};
use herd_core::spec::JobType;
use herd_core::state::{AttemptState, JobState};
use herd_jobdir::runlog::{Piece, RunLogWriter, Stream};
use herd_jobdir::{Durability, Home, JobDir, Summary};
use herd_testing::Answer;
use tempfile::TempDir;

/// A test's own directory with a home in it.
pub(crate) struct Bench {
    /// Removed with the test.
    pub(crate) dir: TempDir,
}

impl Bench {
    /// An empty directory.
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// The binary with this home and nothing of the tester's surroundings that matters.
    pub(crate) fn herd(&self) -> Command {
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_herd"));
        herd_testing::surroundings::remove(&mut program);
        let mut command = Command::from_std(program);
        command
            .current_dir(self.dir.path())
            .env("HERD_HOME", self.dir.path().join("home"));
        for name in ["NO_COLOR", "CLICOLOR_FORCE", "COLUMNS"] {
            command.env_remove(name);
        }
        command
            .env("TZ", "UTC")
            .timeout(std::time::Duration::from_mins(1));
        command
    }

    /// Runs it.
    pub(crate) fn ask(&self, args: &[&str]) -> Answer {
        let output = self.herd().args(args).output().unwrap();
        output.into()
    }

    /// Writes a file beside the home.
    pub(crate) fn file(&self, name: &str, content: &[u8]) {
        std::fs::write(self.dir.path().join(name), content).unwrap();
    }

    /// The home.
    pub(crate) fn home(&self) -> Home {
        Home::at(self.dir.path().join("home")).unwrap()
    }

    /// A job that was written down and no more.
    pub(crate) fn job(&self, name: &str) -> JobDir {
        let id = JobId::generate();
        let job = self.home().create(id).unwrap();
        job.write_summary(&Summary {
            name: name.to_owned(),
            job_type: JobType::Pytorch,
            nodes: 2,
            created_ms: id.created_ms().unwrap(),
            backend: "local".to_owned(),
            command: "python train.py".to_owned(),
        })
        .unwrap();
        job
    }

    /// A job of two ranks whose rank 1 failed with code 3.
    pub(crate) fn failed_job(&self, name: &str) -> JobDir {
        let job = self.job(name);
        let attempt = job.attempt(1);
        attempt.create().unwrap();
        let start = job.id().created_ms().unwrap();
        let failed = ProcessEnd::Exited(3);
        let mut events = attempt.event_writer().unwrap();
        for kind in [
            EventKind::NodeJoined {
                node: 0,
                name: "node0".into(),
                pid: 11,
            },
            EventKind::NodeJoined {
                node: 1,
                name: "node1".into(),
                pid: 12,
            },
            EventKind::Attempt {
                state: AttemptState::Running,
                failure: None,
            },
            EventKind::RankStarted {
                rank: 0,
                node: 0,
                pid: 21,
            },
            EventKind::RankStarted {
                rank: 1,
                node: 1,
                pid: 22,
            },
            EventKind::RankEnded {
                rank: 1,
                node: 1,
                end: failed,
                stopped: false,
            },
            EventKind::RankEnded {
                rank: 0,
                node: 0,
                end: ProcessEnd::Signaled(15),
                stopped: true,
            },
        ] {
            events
                .write(&Event {
                    time_ms: start + 1,
                    kind,
                })
                .unwrap();
        }
        let mut log = RunLogWriter::open(job.path()).unwrap();
        for (rank, stream, text) in [
            (0, Stream::Stdout, "(node0, rank=0) hello from 0\n"),
            (
                1,
                Stream::Stdout,
                "(node1, rank=1) hello \x1b]0;title\x07from 1\n",
            ),
            (1, Stream::Stderr, "(node1, rank=1) ValueError: no data\n"),
        ] {
            let piece = Piece {
                time_ms: start + 2,
                rank,
                node: rank,
                stream,
                prefix_len: 16,
                continuation: false,
            };
            log.append(&piece, |log| log.extend_from_slice(text.as_bytes()))
                .unwrap();
        }
        log.flush().unwrap();
        let rank = RankResult {
            rank: 1,
            node: 1,
            end: failed,
            ended_ms: start + 3,
            stopped: false,
            start_error: None,
            error: Some(RankError {
                message: "ValueError: no data".into(),
                traceback: None,
                timestamp_ms: None,
            }),
            last_lines: vec!["ValueError: no data".into()],
            cpu_ms: 0,
            peak_kib: 0,
            out_of_memory: false,
        };
        let failure = Failure::RankFailed(Box::new(rank.clone()));
        let end = AttemptEnd {
            why: None,
            state: AttemptState::Failed,
            failure: Some(failure.clone()),
            exit_code: 3,
            ended_ms: start + 4,
            ranks: vec![rank],
        };
        attempt.write_end(&end, Durability::Process).unwrap();
        Self::finish(&job, JobState::Failed, Some(failure), 3);
        job
    }

    /// Writes a job's result.
    pub(crate) fn finish(job: &JobDir, state: JobState, failure: Option<Failure>, exit_code: u8) {
        let result = JobResult {
            state,
            rejection: None,
            reason: None,
            failure,
            exit_code,
            attempts: 1,
            ended_ms: job.id().created_ms().unwrap() + 4,
            tasks: None,
        };
        job.write_result(&result, Durability::Process).unwrap();
    }
}
