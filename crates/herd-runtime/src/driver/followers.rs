//! The driver's part in clients that follow the merged output: reads the files and sends what
//! [`crate::session::follow`] says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use herd_jobdir::runlog::{DATA_NAME, INDEX_NAME};
use herd_link::message::{FromCoordinator, ToCoordinator};
use herd_link::session::{SessionEvent, SessionMessage, follow};
use herd_link::{Frame, StdioFrame};
use tokio::time::{Instant, timeout_at};

use super::Driver;
use crate::connections::{ConnectionId, Incoming};
use crate::session::follow::{FOLLOWERS, Follower, Lengths, Wanted};

/// Bound on sending the rest to those that follow, once the attempt has ended. It delays the end of the
/// driver, so it is short; a client that is slower finds the rest in the job's directory.
const REST_BOUND: Duration = Duration::from_secs(2);

/// All clients that follow.
pub(super) struct Followers {
    files: Files,
    followers: BTreeMap<ConnectionId, Follower>,
}

impl Followers {
    /// Of the output in this directory of a job.
    pub(super) fn new(job_dir: &Path) -> Self {
        Self {
            files: Files {
                directory: job_dir.to_path_buf(),
                open: None,
            },
            followers: BTreeMap::new(),
        }
    }

    /// Whether what a client says is about what it follows.
    pub(super) fn hear(&mut self, client: ConnectionId, message: &SessionMessage) -> bool {
        let follower = self.followers.get_mut(&client);
        if let (Some(follower), SessionEvent::Taken { stream, bytes }) = (follower, &message.event)
        {
            follower.taken(*stream, *bytes);
            return true;
        }
        false
    }

    /// A client has left.
    pub(super) fn gone(&mut self, client: ConnectionId) {
        self.followers.remove(&client);
    }

    /// Those that were sent everything, who follow no more.
    fn take_done(&mut self) -> Vec<ConnectionId> {
        let done = self
            .followers
            .extract_if(.., |_, follower| follower.is_done());
        done.map(|(client, _)| client).collect()
    }

    fn take(&mut self, client: ConnectionId, has: Lengths) -> Result<Lengths, String> {
        if self.followers.len() >= FOLLOWERS && !self.followers.contains_key(&client) {
            return Err(format!(
                "{FOLLOWERS} clients follow this job already, which is the most"
            ));
        }
        let files = self.files.lengths().map_err(|error| unreadable(&error))?;
        let follower = Follower::new(has, files)
            .ok_or("the output is shorter than what is there of it already")?;
        self.followers.insert(client, follower);
        Ok(files)
    }

    /// What can be sent now, client by client; a client that cannot be served hears why.
    fn frames(&mut self) -> Vec<(ConnectionId, Result<Frame, String>)> {
        let mut frames = Vec::new();
        // The same for all, and looked at once.
        let mut lengths = None;
        self.followers.retain(|&client, follower| {
            loop {
                let Some(wanted) = follower.next() else {
                    if !follower.is_done() {
                        return true;
                    }
                    let files = match lengths {
                        Some(files) => files,
                        None => match self.files.lengths() {
                            Ok(files) => *lengths.insert(files),
                            Err(error) => {
                                frames.push((client, Err(unreadable(&error))));
                                return false;
                            }
                        },
                    };
                    if !follower.grown(files) {
                        return true;
                    }
                    continue;
                };
                match self.files.read(wanted) {
                    Ok(frame) => frames.push((client, Ok(frame))),
                    Err(error) => {
                        frames.push((client, Err(unreadable(&error))));
                        return false;
                    }
                }
            }
        });
        frames
    }
}

impl Driver {
    /// A client asks for the merged output.
    pub(super) fn follow(&mut self, client: ConnectionId, has: Lengths) -> FromCoordinator {
        match self.followers.take(client, has) {
            Ok(Lengths { log, index }) => FromCoordinator::Following { log, index },
            Err(reason) => FromCoordinator::Refused { reason },
        }
    }

    /// Sends what there is to those that follow and have taken what came before.
    pub(super) fn feed_followers(&mut self) {
        for (client, frame) in self.followers.frames() {
            match frame {
                Ok(frame) => self.connections.send_frame(client, frame),
                Err(reason) => {
                    let refused = FromCoordinator::Refused { reason };
                    self.connections.send(client, &refused);
                }
            }
        }
    }

    /// Sends the rest, for at most [`REST_BOUND`], and says that it was.
    pub(super) async fn end_followers(&mut self) {
        let deadline = Instant::now() + REST_BOUND;
        let mut leaving = BTreeSet::new();
        loop {
            self.feed_followers();
            for client in self.followers.take_done() {
                // It leaves when it has heard this. Who closes first, with something unread, may take
                // from the other what is on its way.
                self.connections.send(client, &FromCoordinator::Followed);
                leaving.insert(client);
            }
            if self.followers.followers.is_empty() && leaving.is_empty() {
                return;
            }
            let Ok((id, incoming)) = timeout_at(deadline, self.connections.next()).await else {
                return;
            };
            if let Incoming::Ended(_) = &incoming {
                leaving.remove(&id);
            }
            self.hear_at_the_end(id, incoming);
        }
    }

    /// The attempt has ended: only those that follow are still listened to.
    fn hear_at_the_end(&mut self, id: ConnectionId, incoming: Incoming) {
        match incoming {
            Incoming::Frame(Frame::Control(bytes)) => {
                let message = serde_json::from_slice(&bytes).unwrap_or(ToCoordinator::Unknown);
                if let ToCoordinator::Session(message) = message {
                    self.followers.hear(id, &message);
                }
            }
            Incoming::Frame(_) => {}
            Incoming::Broken(_) | Incoming::Ended(_) => self.followers.gone(id),
        }
    }
}

/// The merged output's files, opened when they are first asked for.
struct Files {
    directory: PathBuf,
    open: Option<(File, File)>,
}

impl Files {
    fn both(&mut self) -> io::Result<&(File, File)> {
        let open = match self.open.take() {
            Some(open) => open,
            None => (
                File::open(self.directory.join(DATA_NAME))?,
                File::open(self.directory.join(INDEX_NAME))?,
            ),
        };
        Ok(self.open.insert(open))
    }

    /// The index's first: the text that it speaks of is written before it.
    fn lengths(&mut self) -> io::Result<Lengths> {
        let (log, records) = self.both()?;
        let index = records.metadata()?.len();
        let log = log.metadata()?.len();
        Ok(Lengths { log, index })
    }

    fn read(&mut self, wanted: Wanted) -> io::Result<Frame> {
        let (log, records) = self.both()?;
        let file = if wanted.stream == follow::LOG {
            log
        } else {
            records
        };
        let mut bytes = vec![0; wanted.length];
        file.read_exact_at(&mut bytes, wanted.offset)?;
        Ok(Frame::Stdio(StdioFrame {
            session: 0,
            stream: wanted.stream,
            bytes,
        }))
    }
}

fn unreadable(error: &io::Error) -> String {
    format!("the merged output cannot be read: {error}")
}
