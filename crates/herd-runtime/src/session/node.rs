//! The node's part of sessions: each is one process with pipes or a terminal, owned by one task.

use std::collections::BTreeMap;

use herd_launch::Pid;
use herd_link::StdioFrame;
use herd_link::message::Assign;
use herd_link::session::{SessionEvent, SessionMessage, SessionRequest, stream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::bounds::SESSIONS;
use super::command::Command;

/// Outputs that wait; windows bound their bytes.
const OUTPUTS: usize = 16;
/// Inputs of one session that wait: all that the coordinator lets wait for a node. A command that is slow to
/// take them gets them in small pieces, and among them stands what its client says of each piece of output.
const INPUTS: usize = SESSIONS.frames;

/// What a session has to say to the coordinator.
pub(crate) enum FromSession {
    Stdio(StdioFrame),
    Message(SessionMessage),
}

pub(super) enum Input {
    Stdin(Vec<u8>),
    Event(SessionEvent),
}

/// The sessions of one node.
pub(crate) struct Sessions {
    tasks: JoinSet<()>,
    inputs: BTreeMap<u32, mpsc::Sender<Input>>,
    pids: BTreeMap<u32, Pid>,
    out: mpsc::Sender<FromSession>,
    outgoing: mpsc::Receiver<FromSession>,
}

impl Sessions {
    pub(crate) fn new() -> Self {
        let (out, outgoing) = mpsc::channel(OUTPUTS);
        Self {
            tasks: JoinSet::new(),
            inputs: BTreeMap::new(),
            pids: BTreeMap::new(),
            out,
            outgoing,
        }
    }

    /// What the next session says. Cancel-safe; pends while none has anything to say.
    pub(crate) async fn next(&mut self) -> FromSession {
        let Some(said) = self.outgoing.recv().await else {
            // `self.out` keeps the queue open.
            return std::future::pending().await;
        };
        if let FromSession::Message(SessionMessage {
            session,
            event: SessionEvent::Ended { .. },
        }) = &said
        {
            self.inputs.remove(session);
            self.pids.remove(session);
            while self.tasks.try_join_next().is_some() {}
        }
        said
    }

    /// Processes that are nobody's leftovers.
    pub(crate) fn pids(&self) -> Vec<Pid> {
        self.pids.values().copied().collect()
    }

    /// A message about a session: starts it, or hands it on.
    pub(crate) fn obey(
        &mut self,
        assign: &Assign,
        SessionMessage { session, event }: SessionMessage,
    ) {
        match event {
            SessionEvent::Start(request) => self.start(assign, session, &request),
            other => self.hand(session, Input::Event(other)),
        }
    }

    /// Bytes for a session's standard input; none are the end.
    pub(crate) fn input(&mut self, frame: StdioFrame) {
        if frame.stream == stream::STDIN {
            self.hand(frame.session, Input::Stdin(frame.bytes));
        }
    }

    /// Ends all sessions and waits for it; bounded by the grace and the time that killing takes.
    pub(crate) async fn end(&mut self) {
        self.inputs.clear();
        self.outgoing.close();
        while self.tasks.join_next().await.is_some() {}
    }

    /// A full queue is a client that does not keep to its window: its session ends.
    fn hand(&mut self, session: u32, input: Input) {
        if let Some(inputs) = self.inputs.get(&session) {
            if inputs.try_send(input).is_err() {
                self.inputs.remove(&session);
            }
        }
    }

    fn start(&mut self, assign: &Assign, session: u32, request: &SessionRequest) {
        let out = self.out.clone();
        match Command::start(assign, request) {
            Ok(command) => {
                let (inputs, input) = mpsc::channel(INPUTS);
                if let Some(pid) = command.pid() {
                    self.pids.insert(session, pid);
                }
                self.inputs.insert(session, inputs);
                self.tasks.spawn(command.run(session, input, out));
            }
            Err((end, why)) => {
                self.tasks.spawn(async move {
                    let event = SessionEvent::Ended {
                        end,
                        start_error: Some(why),
                    };
                    say(&out, session, event).await;
                });
            }
        }
    }
}

/// Nobody hears when the executor is ending.
pub(super) async fn say(out: &mpsc::Sender<FromSession>, session: u32, event: SessionEvent) {
    let message = SessionMessage { session, event };
    drop(out.send(FromSession::Message(message)).await);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use herd_core::exit::ProcessEnd;
    use herd_core::spec::{self, JobSpec};
    use herd_link::session::{Place, WINDOW};
    use tokio::time::timeout;

    use super::*;
    use crate::assigned::assigned;

    const BOUND: Duration = Duration::from_mins(1);

    fn assign() -> Assign {
        let spec = JobSpec {
            run: Some(spec::Command::Argv(vec!["true".to_owned()])),
            ..JobSpec::default()
        };
        assigned(&spec, 1)
    }

    /// What a session has written, and its end.
    async fn rest(sessions: &mut Sessions) -> (Vec<u8>, ProcessEnd) {
        let mut written = Vec::new();
        loop {
            match timeout(BOUND, sessions.next()).await.unwrap() {
                FromSession::Stdio(frame) => written.extend(frame.bytes),
                FromSession::Message(SessionMessage {
                    event: SessionEvent::Ended { end, .. },
                    ..
                }) => return (written, end),
                FromSession::Message(_) => {}
            }
        }
    }

    /// The client keeps to its windows, and nothing of the session comes to its turn meanwhile.
    #[tokio::test]
    async fn i7_small_pieces_that_come_all_at_once_do_not_end_the_command() {
        const PIECES: usize = 3000;
        let mut sessions = Sessions::new();
        let say = |event| SessionMessage { session: 7, event };
        let request = SessionRequest {
            place: Place::Node(0),
            argv: vec!["cat".to_owned()],
            terminal: None,
        };
        let assign = assign();
        sessions.obey(&assign, say(SessionEvent::Start(request)));
        let piece = |bytes: &[u8]| StdioFrame {
            session: 7,
            stream: stream::STDIN,
            bytes: bytes.to_vec(),
        };
        const { assert!(PIECES < WINDOW) };
        for _ in 0..PIECES {
            sessions.input(piece(b"x"));
            let (stream, bytes) = (stream::STDOUT, 1);
            sessions.obey(&assign, say(SessionEvent::Taken { stream, bytes }));
        }
        sessions.input(piece(b""));
        let (written, end) = rest(&mut sessions).await;
        assert_eq!((written.len(), end), (PIECES, ProcessEnd::Exited(0)));
    }
}
