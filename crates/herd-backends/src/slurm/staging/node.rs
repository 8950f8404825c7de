//! `herd-node stage DIRECTORY JOB RUN`: the side of the driver's node. It takes the job's records from its
//! standard input, lets the driver go, and gives back on its standard output what becomes of them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Stdout, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use herd_core::exit;
use herd_core::text::error_report;
use herd_launch::sys;
use herd_slurm::staging::READY;
use nix::sys::signal::Signal;

use super::files::{self, Seen};
use super::left;
use super::link::Conversation;
use super::on_nodes::{ASKED, REQUEUE};
use super::wire::{Head, PART};

/// How often the records are looked at, where that takes no time.
const LOOK: Duration = Duration::from_millis(50);
/// What looking may take of the time.
const SHARE: u32 = 20;

/// From the arguments to the exit code.
pub fn entry(args: &[OsString]) -> u8 {
    // A cancel or requeue reaches every process of the job; this one has to tell of it. Slurm kills it when
    // the job's time to end has passed.
    let held = sys::block_signals(&[
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGCONT,
    ]);
    let staged = held.map(drop).and_then(|()| match args {
        [directory, job, run] => {
            stage(Path::new(directory), Path::new(job), &run.to_string_lossy())
        }
        _ => Err(io::Error::other(
            "expected the job's directory here, the job and its run",
        )),
    });
    match staged {
        Ok(()) => exit::SUCCESS,
        Err(error) => {
            drop(io::stderr().write_all(error_report(&error).as_bytes()));
            exit::HERD_FAILED
        }
    }
}

fn stage(directory: &Path, job: &Path, run: &str) -> io::Result<()> {
    let job = directory.join("jobs").join(job);
    let marker = directory.join(READY);
    let ready = fs::read_to_string(&marker).is_ok_and(|text| text == run);
    let mut side = Side {
        conversation: Conversation::over(io::stdin(), io::stdout())?,
        asked: directory.join(ASKED),
        directory: directory.to_owned(),
        job,
        sent: BTreeMap::new(),
    };
    side.conversation.say(&Head::Here { ready }, b"")?;
    side.take(ready)?;
    if !ready {
        let new = directory.join(".ready");
        fs::write(&new, run)?;
        fs::rename(&new, &marker)?;
    }
    side.give()
}

struct Side {
    conversation: Conversation<Stdout>,
    /// Where the driver asks for the records to be given away.
    asked: PathBuf,
    directory: PathBuf,
    job: PathBuf,
    /// What the other side has of each file.
    sent: BTreeMap<String, Seen>,
}

impl Side {
    /// Takes what the submitting side has. Where the driver runs already, only how much that is.
    fn take(&mut self, ready: bool) -> io::Result<()> {
        loop {
            let (path, length) = match self.conversation.wait()? {
                (Head::Ready, _) => return Ok(()),
                (Head::Whole { path, length }, bytes) => {
                    if !ready {
                        files::write_whole(&files::below(&self.job, &path)?, &bytes)?;
                    }
                    (path, length)
                }
                (Head::Has { path, length }, _) => {
                    if !ready {
                        files::make_long(&files::below(&self.job, &path)?, length)?;
                    }
                    (path, length)
                }
                (Head::Part { path, offset, .. }, bytes) if !ready => {
                    files::write_part(&files::below(&self.job, &path)?, offset, &bytes)?;
                    self.note(path);
                    continue;
                }
                _ => continue,
            };
            self.sent.insert(
                path.clone(),
                Seen {
                    length,
                    changed: None,
                },
            );
            if !ready {
                self.note(path);
            }
        }
    }

    /// A file here is what the other side has.
    fn note(&mut self, path: String) {
        if let Some(seen) = files::list_one(&self.job, &path) {
            self.sent.insert(path, seen);
        }
    }

    /// Gives until the job has ended and all is kept.
    fn give(&mut self) -> io::Result<()> {
        loop {
            let began = Instant::now();
            // Before the look: what was written before it is in it.
            let asked = fs::read_to_string(&self.asked).ok();
            self.give_once()?;
            if let Some(asked) = asked {
                self.conversation.say(&Head::AllSent, b"")?;
                while self.conversation.wait()?.0 != Head::Kept {}
                // The driver ends now, one way or the other.
                let requeue = asked == REQUEUE;
                self.conversation.say(&Head::Over { requeue }, b"")?;
                return fs::remove_file(&self.asked);
            }
            let pause = (began.elapsed() * SHARE).max(LOOK);
            if let Some((
                Head::Cancel {
                    signal,
                    grace_ms,
                    by,
                },
                _,
            )) = self.conversation.next(pause)?
            {
                super::on_nodes::pass_on(&self.job, signal, grace_ms, &by)?;
            }
        }
    }

    /// Sends what is new. Whatever speaks of other files is looked at before and sent after them: the
    /// result of the job last of all, so that whoever hears of it has what the job has left, too.
    fn give_once(&mut self) -> io::Result<()> {
        let result = files::list_one(&self.job, RESULT);
        let mut speaking = files::list(&self.job);
        speaking.retain(|path, _| speaks(path));
        let mut rest = files::list(&self.job);
        rest.retain(|path, _| !speaks(path) && path != RESULT);
        if result.is_some() && !self.sent.contains_key(RESULT) {
            left::send(&mut self.conversation, &self.directory, &self.asked)?;
        }
        let result = result.map(|seen| (RESULT.to_owned(), seen));
        for (path, seen) in rest.into_iter().chain(speaking).chain(result) {
            if self.sent.get(&path) != Some(&seen) {
                self.send(path, seen)?;
            }
        }
        Ok(())
    }

    fn send(&mut self, path: String, seen: Seen) -> io::Result<()> {
        // One that is gone was not to stay.
        let Ok(mut file) = File::open(self.job.join(&path)) else {
            return Ok(());
        };
        if !files::grows(&path) {
            let mut bytes = Vec::new();
            file.take(super::wire::MOST_WHOLE).read_to_end(&mut bytes)?;
            let head = Head::Whole {
                path: path.clone(),
                length: bytes.len() as u64,
            };
            self.conversation.say(&head, &bytes)?;
            self.sent.insert(path, seen);
            return Ok(());
        }
        let before = self.sent.get(&path).map_or(0, |sent| sent.length);
        // A shorter one was truncated by its rank, and begins anew.
        let mut offset = if before <= seen.length { before } else { 0 };
        file.seek(SeekFrom::Start(offset))?;
        while offset < seen.length || (offset == 0 && before > 0) {
            let mut bytes = Vec::new();
            let wanted = PART.min(seen.length - offset);
            (&mut file).take(wanted).read_to_end(&mut bytes)?;
            let head = Head::Part {
                path: path.clone(),
                offset,
                length: bytes.len() as u64,
            };
            self.conversation.say(&head, &bytes)?;
            if bytes.is_empty() {
                break;
            }
            offset += bytes.len() as u64;
        }
        self.sent.insert(
            path,
            Seen {
                length: offset,
                ..seen
            },
        );
        Ok(())
    }
}

/// The job's result.
pub(super) const RESULT: &str = "result.json";

/// Whether a file speaks of what others hold.
fn speaks(path: &str) -> bool {
    path == "run.index" || path.ends_with("/end")
}
