//! What the two sides say to each other: a greeting, one request, its answer. Requests are JSON of a
//! length that stands before them; answers are lines of JSON, with the bytes of files between them.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;

use herd_core::JobId;
use herd_core::plan::Plan;
use herd_core::spec::JobSpec;
use herd_jobdir::status::Brief;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::channel::Channel;
use crate::error::LoginError;

/// Changes with whatever an older side would misread.
pub const PROTOCOL: u32 = 1;
/// Longest request and longest line of an answer.
pub const MOST: usize = 16 << 20;
/// Longest piece of a file.
pub const MOST_PIECE: usize = 1 << 20;
/// Time between signs of life of an answer that goes on.
pub const TICK: Duration = Duration::from_secs(5);

/// The first words of the other side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Its release.
    pub version: String,
    /// Its directory for jobs.
    pub home: String,
}

/// What is asked for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Request {
    /// Take the programs that were just unpacked into use.
    Install {
        /// What they must be.
        hash: String,
    },
    /// The plan of a job, or what stands against it.
    Check(Job),
    /// Its batch script.
    Render(Job),
    /// Hand it to Slurm. Asked again with the same id it is not handed over again.
    Submit {
        /// The job.
        #[serde(flatten)]
        job: Job,
        /// Its secrets.
        secrets: Secrets,
        /// The job file, as the user wrote it.
        job_yaml: String,
    },
    /// Take files for the job's directory of work; they follow as pieces (`workdir`).
    Workdir {
        /// Whose.
        job: JobId,
    },
    /// Send a job's directory of work, as pieces after a line with its bytes.
    Fetch {
        /// Whose.
        job: JobId,
    },
    /// What jobs have that this side lacks.
    Sync {
        /// The jobs.
        jobs: Vec<Held>,
        /// Whether what they print is wanted, too.
        log: bool,
        /// Whether to go on until they have ended.
        follow: bool,
    },
    /// Run herd with these arguments and the streams of the call.
    Herd {
        /// Its arguments.
        args: Vec<String>,
    },
    /// Look the cluster over.
    Doctor {
        /// Which of several clusters, and what jobs get that do not say.
        options: [Option<String>; 4],
    },
}

/// A job as far as it can be resolved without the cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// The backend's name here.
    pub backend: String,
    /// Which of several clusters.
    pub cluster: Option<String>,
    /// Where its nodes have room for jobs, in case they do not see the login node's directory.
    pub node_dir: Option<PathBuf>,
    /// What it is; its directory of work is one of the other side.
    pub spec: JobSpec,
    /// Name of its file.
    pub file_name: Option<String>,
    /// Variables of the submitting shell that it gets.
    pub env: BTreeMap<String, String>,
}

/// Values of secrets by name; shown without them.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secrets(pub BTreeMap<String, String>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// What this side has of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The job.
    pub job: JobId,
    /// Lengths of its files, by path below its directory.
    pub files: BTreeMap<String, u64>,
}

/// A plan and what to know about it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Checked {
    /// The plan.
    pub plan: Plan,
    /// Said before the job starts.
    pub notes: Vec<String>,
}

/// A job that Slurm has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Submitted {
    /// Slurm's number.
    pub number: u32,
}

/// One line of the answer to [`Request::Sync`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Part {
    /// A piece of a file; `length` bytes follow the line.
    File {
        /// Whose.
        job: JobId,
        /// Which, below the job's directory.
        path: String,
        /// Where the piece begins.
        offset: u64,
        /// Its length.
        length: usize,
        /// Whether it is all of the file, which takes the place of what is there.
        whole: bool,
    },
    /// Where a job stands. All pieces of files that it was read from have been sent.
    Stands {
        /// Which.
        job: JobId,
        /// Where; nothing where there is no such job.
        brief: Option<Brief>,
    },
    /// A sign of life: all that was said is as it was.
    Tick,
    /// There is nothing more to say.
    Done,
}

/// An answer, or why there is none.
pub type Reply<T> = Result<T, Refusal>;

/// Why the other side does not do what it was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// All of it, for people.
    pub text: String,
    /// Hints, in order.
    pub hints: Vec<String>,
    /// Faults of the job, where these are the reason.
    pub faults: Vec<Fault>,
    /// The code that herd ends with.
    pub code: u8,
}

/// One fault of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The key of the job file.
    pub key: Option<String>,
    /// What is wrong.
    pub text: String,
    /// What helps.
    pub hint: Option<String>,
}

/// Sends a request.
pub fn send(channel: &mut Channel, request: &Request) -> Result<(), LoginError> {
    let bytes = serde_json::to_vec(request)
        .map_err(|error| channel.misunderstood(format!("a request cannot be written: {error}")))?;
    if bytes.len() > MOST {
        return Err(LoginError::here(
            "send the job",
            io::Error::other("it is larger than 16 MiB"),
        ));
    }
    channel.write(format!("{}\n", bytes.len()).as_bytes())?;
    channel.write(&bytes)
}

/// Reads one line of an answer.
pub fn receive<T: DeserializeOwned>(
    channel: &mut Channel,
    within: Duration,
) -> Result<T, LoginError> {
    let line = channel.line_within(MOST, within)?;
    serde_json::from_slice(&line)
        .map_err(|error| channel.misunderstood(format!("a line of its answer: {error}")))
}

/// Sends a request and reads the answer of one line.
pub fn ask<T: DeserializeOwned>(
    channel: &mut Channel,
    request: &Request,
    within: Duration,
) -> Result<Reply<T>, LoginError> {
    send(channel, request)?;
    receive(channel, within)
}

/// Reads a request, and no byte more than it: what follows belongs to somebody else.
pub fn read_request(input: &mut impl Read) -> io::Result<Request> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut length = 0_usize;
    loop {
        let mut byte = [0];
        input.read_exact(&mut byte)?;
        match byte[0] {
            b'\n' => break,
            digit @ b'0'..=b'9' => {
                length = length
                    .saturating_mul(10)
                    .saturating_add(usize::from(digit - b'0'));
            }
            _ => return Err(wrong("a request without a length")),
        }
    }
    if length > MOST {
        return Err(wrong("a request that is too long"));
    }
    let mut bytes = vec![0; length];
    input.read_exact(&mut bytes)?;
    serde_json::from_slice(&bytes).map_err(|error| wrong(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(request: &Request) -> Vec<u8> {
        let bytes = serde_json::to_vec(request).unwrap();
        [format!("{}\n", bytes.len()).as_bytes(), &bytes].concat()
    }

    #[test]
    fn a_request_ends_where_it_ends() {
        let request = Request::Herd {
            args: vec!["exec".to_owned(), "a\nb".to_owned()],
        };
        let mut bytes = framed(&request);
        bytes.extend_from_slice(b"input of the command");
        let mut input = bytes.as_slice();
        let read = read_request(&mut input).unwrap();
        assert_eq!(format!("{read:?}"), format!("{request:?}"));
        assert_eq!(input, b"input of the command");
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for text in ["", "x", "5\n{}", "99999999999999999999\n", "2\n{}"] {
            assert!(read_request(&mut text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn i12_secrets_travel_and_are_not_shown() {
        let job = Job {
            id: JobId::generate(),
            backend: "far".to_owned(),
            cluster: None,
            node_dir: None,
            spec: JobSpec::default(),
            file_name: None,
            env: BTreeMap::new(),
        };
        let request = Request::Submit {
            job,
            secrets: Secrets([("T".to_owned(), "hunter2".to_owned())].into()),
            job_yaml: "run: a\n".to_owned(),
        };
        assert!(!format!("{request:?}").contains("hunter2"));
        match read_request(&mut framed(&request).as_slice()).unwrap() {
            Request::Submit { secrets, .. } => assert_eq!(secrets.0["T"], "hunter2"),
            other => panic!("{other:?}"),
        }
    }
}
