//! The ranks of one node as their shims tell of them: a socket, and one task for each shim.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use herd_core::exit::ProcessEnd;
use herd_link::message::Assign;
use tokio::io::BufReader;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::wire::{self, FromShim, Lines, RankCommand, ToShim};

/// Bound on a shim's first words.
const HELLO_BOUND: Duration = Duration::from_secs(10);
/// Events that wait; ranks say little.
const QUEUE: usize = 16;

/// What became of a rank.
#[derive(Debug)]
pub(super) enum RankEvent {
    Started {
        rank: u32,
        pid: u32,
    },
    /// `end` is absent where its shim is gone without having said it.
    Ended {
        rank: u32,
        end: Option<ProcessEnd>,
        ended_ms: u64,
        start_error: Option<String>,
        cpu_ms: u64,
        peak_kib: u64,
    },
}

/// Says what a rank is to run.
pub(super) type Describe = dyn Fn(u32) -> RankCommand + Send + Sync;

/// The shims of one node.
pub(super) struct Ranks {
    listener: UnixListener,
    first: u32,
    count: u32,
    world: u32,
    describe: Arc<Describe>,
    shims: JoinSet<()>,
    stop: watch::Sender<Option<i32>>,
    say: mpsc::Sender<RankEvent>,
    said: mpsc::Receiver<RankEvent>,
}

impl Ranks {
    pub(super) fn listen(
        socket: &std::path::Path,
        assign: &Assign,
        describe: Arc<Describe>,
    ) -> io::Result<Self> {
        let (say, said) = mpsc::channel(QUEUE);
        let count = assign.plan.ranks_per_node;
        Ok(Self {
            listener: UnixListener::bind(socket)?,
            first: assign.first_rank,
            count,
            world: assign.plan.world_size(),
            describe,
            shims: JoinSet::new(),
            stop: watch::Sender::new(None),
            say,
            said,
        })
    }

    /// The next event. Cancel-safe.
    pub(super) async fn next(&mut self) -> RankEvent {
        loop {
            tokio::select! {
                event = self.said.recv() => if let Some(event) = event {
                    return event;
                },
                // What a shim had to say is in the queue by then.
                Some(_) = self.shims.join_next() => {}
                accepted = self.listener.accept() => {
                    // Out of descriptors: the shim's own bound tells its user.
                    if let Ok((stream, _)) = accepted {
                        self.adopt(stream);
                    }
                }
            }
        }
    }

    /// Whether shims are there, or have said what is not heard yet.
    pub(super) fn are_there(&self) -> bool {
        !self.shims.is_empty() || !self.said.is_empty()
    }

    /// Has all ranks stopped; a later signal replaces an earlier one.
    pub(super) fn stop(&self, signal: i32) {
        self.stop.send_replace(Some(signal));
    }

    fn adopt(&mut self, stream: UnixStream) {
        // Another user's process is not even read.
        let own = rustix::process::geteuid().as_raw();
        if !stream.peer_cred().is_ok_and(|peer| peer.uid() == own) {
            return;
        }
        let shim = Shim {
            first: self.first,
            count: self.count,
            world: self.world,
            say: self.say.clone(),
        };
        self.shims
            .spawn(shim.serve(stream, Arc::clone(&self.describe), self.stop.subscribe()));
    }
}

struct Shim {
    first: u32,
    count: u32,
    world: u32,
    say: mpsc::Sender<RankEvent>,
}

impl Shim {
    async fn serve(
        self,
        stream: UnixStream,
        describe: Arc<Describe>,
        mut stop: watch::Receiver<Option<i32>>,
    ) {
        let (read, mut write) = stream.into_split();
        let mut read = Lines::new(BufReader::new(read));
        let hello = timeout(HELLO_BOUND, read.next()).await;
        let Ok(Ok(Some(FromShim::Hello { rank, size }))) = hello else {
            return;
        };
        let answer = match self.refusal(rank, size) {
            None => ToShim::Run(describe(rank)),
            Some(reason) => ToShim::Refused { reason },
        };
        let refused = matches!(answer, ToShim::Refused { .. });
        if wire::write(&mut write, &answer).await.is_err() || refused {
            return;
        }
        let ended = self.watch(rank, &mut read, &mut write, &mut stop).await;
        // Nobody hears when the phase is over.
        drop(self.say.send(ended).await);
    }

    fn refusal(&self, rank: u32, size: u32) -> Option<String> {
        if size != self.world {
            return Some(format!(
                "MPI counts {size} ranks where the job has {}: is it the mpirun of the MPI that the \
                 program was built with?",
                self.world
            ));
        }
        if !(self.first..self.first + self.count).contains(&rank) {
            return Some(format!(
                "MPI has placed rank {rank} on the wrong node: leave mapping and host files to herd"
            ));
        }
        None
    }

    /// Until the rank has ended or its shim is gone.
    async fn watch(
        &self,
        rank: u32,
        read: &mut Lines<BufReader<OwnedReadHalf>>,
        write: &mut OwnedWriteHalf,
        stop: &mut watch::Receiver<Option<i32>>,
    ) -> RankEvent {
        let gone = RankEvent::Ended {
            rank,
            end: None,
            ended_ms: 0,
            start_error: None,
            cpu_ms: 0,
            peak_kib: 0,
        };
        // A stop that was asked for before this rank came is for it, too.
        stop.mark_changed();
        let mut stopping = true;
        loop {
            tokio::select! {
                said = read.next() => match said {
                    Ok(Some(FromShim::Started { pid })) => {
                        drop(self.say.send(RankEvent::Started { rank, pid }).await);
                    }
                    Ok(Some(FromShim::Ended { end, ended_ms, start_error, cpu_ms, peak_kib })) => {
                        return RankEvent::Ended {
                            rank,
                            end: Some(end),
                            ended_ms,
                            start_error,
                            cpu_ms,
                            peak_kib,
                        };
                    }
                    Ok(Some(FromShim::Hello { .. }) | None) | Err(_) => return gone,
                },
                changed = stop.changed(), if stopping => {
                    let signal = *stop.borrow_and_update();
                    stopping = changed.is_ok();
                    if let Some(signal) = signal {
                        if wire::write(write, &ToShim::Stop { signal }).await.is_err() {
                            return gone;
                        }
                    }
                }
            }
        }
    }
}
