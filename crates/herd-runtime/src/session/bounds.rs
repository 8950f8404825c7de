//! How much may wait for a node until it says that it has received it. What a session would add beyond
//! its bound ends the session; the coordinator's own messages have room beyond that, so a command that
//! somebody runs in the job never takes it from the job.

use herd_link::MAX_FRAME;
use herd_link::resume::{Bound, OVERHEAD, SAY_BYTES, SAY_FRAMES};
use herd_link::session::{MAX_REQUEST, WINDOW};

/// Sessions of one node at once.
pub(crate) const SESSIONS_PER_NODE: usize = 16;

/// Frames of one session that may wait: its input in pieces, and what its client says of output that
/// it has taken.
const SESSION_FRAMES: usize = 512;
/// Most bytes of what a client says of output as JSON.
const TAKEN: usize = 128;
/// Bytes of one session that may wait: a window of input, and messages in all its frames.
const SESSION_BYTES: usize = WINDOW + SESSION_FRAMES * (OVERHEAD + TAKEN);
/// Bytes of a request to start one.
const START: usize = MAX_REQUEST + OVERHEAD + TAKEN;

/// For frames of sessions: all that a node takes with their windows full, another that is just being
/// started, and what the node has received and not said yet.
pub(crate) const SESSIONS: Bound = Bound {
    bytes: SESSIONS_PER_NODE * SESSION_BYTES + START + SAY_BYTES,
    frames: SESSIONS_PER_NODE * SESSION_FRAMES + SAY_FRAMES,
};

/// Small messages of the coordinator itself: heartbeats, phases, tasks, ends of sessions.
const MESSAGES: Bound = Bound {
    bytes: 1024 * 1024,
    frames: 4096,
};

/// For all frames. One large message finds room beside all sessions, and small ones after it. A node
/// that does not take even those is lost.
pub(crate) const NODE: Bound = Bound {
    bytes: SESSIONS.bytes + MAX_FRAME + OVERHEAD + MESSAGES.bytes,
    frames: SESSIONS.frames + MESSAGES.frames,
};

#[cfg(test)]
mod tests {
    use herd_link::Frame;
    use herd_link::StdioFrame;
    use herd_link::message::FromCoordinator;
    use herd_link::resume::Outbox;
    use herd_link::session::{CHUNK, Place, SessionEvent, SessionMessage, SessionRequest, stream};

    use super::*;

    fn control(event: SessionEvent) -> Frame {
        let session = u32::MAX;
        let message = FromCoordinator::Session(SessionMessage { session, event });
        Frame::Control(serde_json::to_vec(&message).unwrap())
    }

    fn taken() -> Frame {
        control(SessionEvent::Taken {
            stream: u8::MAX,
            bytes: u32::MAX,
        })
    }

    #[test]
    fn all_sessions_with_full_windows_fit_and_the_coordinators_own_messages_beside_them() {
        let mut outbox = Outbox::default();
        let chunk = Frame::Stdio(StdioFrame {
            session: u32::MAX,
            stream: stream::STDIN,
            bytes: vec![0; CHUNK],
        });
        let mut add = |frame: Frame, bound| {
            assert!(outbox.fits(&frame, bound));
            outbox.push(frame);
        };
        let chunks = WINDOW / CHUNK;
        for _ in 0..SESSIONS_PER_NODE {
            for _ in 0..chunks {
                add(chunk.clone(), SESSIONS);
            }
            for _ in chunks..SESSION_FRAMES {
                add(taken(), SESSIONS);
            }
        }
        let request = SessionRequest {
            place: Place::Rank(u32::MAX),
            argv: vec![String::new()],
            terminal: None,
        };
        let empty = serde_json::to_vec(&request).unwrap().len();
        let argv = vec!["x".repeat(MAX_REQUEST - empty)];
        let largest = SessionRequest { argv, ..request };
        assert_eq!(largest.check_size(), Ok(()));
        add(control(SessionEvent::Start(largest)), SESSIONS);
        add(Frame::Control(vec![0; MAX_FRAME - 1]), NODE);
        for _ in 0..SESSIONS_PER_NODE {
            add(control(SessionEvent::Close), NODE);
        }
        assert!(outbox.is_below(NODE));
    }

    #[test]
    fn what_a_client_says_of_output_is_no_longer_than_is_counted() {
        let Frame::Control(json) = taken() else {
            unreachable!()
        };
        assert!(json.len() <= TAKEN, "{}", json.len());
    }

    #[test]
    fn a_request_that_is_too_long_is_refused_with_its_length() {
        let request = SessionRequest {
            place: Place::Node(0),
            argv: vec!["x".repeat(1_100_000)],
            terminal: None,
        };
        let error = request.check_size().unwrap_err();
        assert!(
            error.to_string().contains("1048576 are the most"),
            "{error}"
        );
    }
}
