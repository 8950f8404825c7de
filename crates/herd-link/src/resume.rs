//! Conversations that outlive their connections: what was not received is sent again on the next
//! one, each frame exactly once and in order. Pure: it is told what was sent and received.
//!
//! The connecting side chooses a [`Token`] for the conversation and begins each connection with a
//! [`Resume`]: the token, and how many frames of the peer it has received in all. The listening side
//! answers with its own count, and each sends what the other lacks. Frames count from the first of
//! the conversation; the frames `resume` and `received` themselves do not count. While a connection
//! stands, each side says from time to time how far it has come (`received`), so that the other need
//! not keep more than a window.

use std::collections::VecDeque;
use std::fmt;

use thiserror::Error;

use crate::Frame;

/// Bytes that are sent without having been acknowledged, unless a single frame is larger.
pub const WINDOW: usize = 1024 * 1024;
/// Frames that are sent without having been acknowledged.
const WINDOW_FRAMES: usize = 4096;
/// After this many bytes the receiver says how far it has come; well below [`WINDOW`].
pub const SAY_BYTES: usize = WINDOW / 4;
/// The same in frames.
pub const SAY_FRAMES: usize = 64;
/// What a frame costs besides its payload.
pub const OVERHEAD: usize = 64;

/// How much an [`Outbox`] may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Bytes of the frames with their [`OVERHEAD`].
    pub bytes: usize,
    /// Frames.
    pub frames: usize,
}

/// Names a conversation. Random, so that no other process can take it over by accident; what keeps
/// strangers out is the link's key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(pub [u8; 16]);

impl Token {
    /// A new one. Fails where the system has no randomness to give.
    pub fn generate() -> std::io::Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(std::io::Error::from)?;
        Ok(Self(bytes))
    }
}

/// It is no secret, but of no use to a reader either.
impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token")
    }
}

/// How each side begins a connection of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume {
    /// Which conversation.
    pub token: Token,
    /// How many of the peer's frames have been received in all.
    pub received: u64,
}

/// The peer says that it has received what was never sent, or has forgotten what it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the peer counts {said} frames as received where {from} to {to} are possible")]
pub struct WrongCount {
    /// What it says.
    pub said: u64,
    /// What it had said before.
    pub from: u64,
    /// What was sent.
    pub to: u64,
}

/// What one side has sent and the other has not acknowledged.
#[derive(Debug, Default)]
pub struct Outbox {
    kept: VecDeque<Frame>,
    /// Number of frames before those kept.
    acknowledged: u64,
    bytes: usize,
}

impl Outbox {
    /// Whether more may be sent before something is acknowledged.
    pub fn has_room(&self) -> bool {
        self.is_below(Bound {
            bytes: WINDOW,
            frames: WINDOW_FRAMES,
        })
    }

    /// Whether it holds less than `bound`, so that one more frame, however large, takes it beyond by
    /// no more than itself.
    pub fn is_below(&self, bound: Bound) -> bool {
        self.bytes < bound.bytes && self.kept.len() < bound.frames
    }

    /// Whether it still holds no more than `bound` with this frame.
    pub fn fits(&self, frame: &Frame, bound: Bound) -> bool {
        self.bytes + cost(frame) <= bound.bytes && self.kept.len() < bound.frames
    }

    /// Keeps a frame that is to be sent. Taken beyond [`Outbox::has_room`] too: who sends bounds it.
    pub fn push(&mut self, frame: Frame) {
        self.bytes += cost(&frame);
        self.kept.push_back(frame);
    }

    /// The frame after the first `count` of the conversation; `None` where there is none yet, or
    /// where the peer has it.
    pub fn after(&self, count: u64) -> Option<&Frame> {
        let index = count.checked_sub(self.acknowledged)?;
        self.kept.get(usize::try_from(index).ok()?)
    }

    /// Frames that the peer has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// The peer has received `count` frames of this side in all.
    pub fn acknowledge(&mut self, count: u64) -> Result<(), WrongCount> {
        let sent = self.acknowledged + self.kept.len() as u64;
        if count < self.acknowledged || count > sent {
            return Err(WrongCount {
                said: count,
                from: self.acknowledged,
                to: sent,
            });
        }
        while self.acknowledged < count {
            if let Some(frame) = self.kept.pop_front() {
                self.bytes -= cost(&frame);
            }
            self.acknowledged += 1;
        }
        Ok(())
    }

    /// What is not acknowledged, in order: to be sent again on a new connection.
    pub fn unacknowledged(&self) -> impl ExactSizeIterator<Item = &Frame> {
        self.kept.iter()
    }
}

/// How much of the peer's frames one side has received.
#[derive(Debug, Default)]
pub struct Inbox {
    received: u64,
    unsaid_bytes: usize,
    unsaid_frames: usize,
}

impl Inbox {
    /// Counts a frame. Gives the count to send as `received` where it is time to say it.
    pub fn count(&mut self, frame: &Frame) -> Option<u64> {
        self.received += 1;
        self.unsaid_bytes += cost(frame);
        self.unsaid_frames += 1;
        if self.unsaid_bytes < SAY_BYTES && self.unsaid_frames < SAY_FRAMES {
            return None;
        }
        self.unsaid_bytes = 0;
        self.unsaid_frames = 0;
        Some(self.received)
    }

    /// Frames received in all.
    pub fn received(&self) -> u64 {
        self.received
    }
}

fn cost(frame: &Frame) -> usize {
    let payload = match frame {
        Frame::Control(json) => json.len(),
        Frame::Log(log) => log.bytes.len(),
        Frame::Stdio(stdio) => stdio.bytes.len(),
        Frame::Resume(_) | Frame::Received(_) => 0,
    };
    payload + OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::tests::pseudo_random;

    fn numbered(number: u64) -> Frame {
        Frame::Control(number.to_be_bytes().to_vec())
    }

    #[test]
    fn i7_each_frame_arrives_once_and_in_order_however_often_the_connection_breaks() {
        for seed in 1..200 {
            let mut random = pseudo_random(seed);
            let (mut outbox, mut inbox) = (Outbox::default(), Inbox::default());
            let mut on_the_way: VecDeque<Frame> = VecDeque::new();
            let mut acknowledgements: VecDeque<u64> = VecDeque::new();
            let (mut sent, mut arrived) = (0, Vec::new());
            while arrived.len() < 300 {
                match random() % 8 {
                    0..=2 if outbox.has_room() && sent < 300 => {
                        outbox.push(numbered(sent));
                        on_the_way.push_back(outbox.after(sent).unwrap().clone());
                        sent += 1;
                    }
                    3..=5 => {
                        if let Some(frame) = on_the_way.pop_front() {
                            acknowledgements.extend(inbox.count(&frame));
                            arrived.push(frame);
                        }
                    }
                    6 => {
                        if let Some(count) = acknowledgements.pop_front() {
                            outbox.acknowledge(count).unwrap();
                        }
                    }
                    // A break loses what is on the way, both ways; then both begin again.
                    _ if random().is_multiple_of(8) => {
                        acknowledgements.clear();
                        outbox.acknowledge(inbox.received()).unwrap();
                        on_the_way = outbox.unacknowledged().cloned().collect();
                    }
                    _ => {}
                }
            }
            assert_eq!(arrived, (0..300).map(numbered).collect::<Vec<_>>());
        }
    }

    #[test]
    fn no_more_than_a_window_waits_for_an_acknowledgement() {
        let (mut outbox, mut inbox) = (Outbox::default(), Inbox::default());
        let mut said = None;
        while outbox.has_room() {
            let frame = Frame::Control(vec![0; 60_000]);
            said = inbox.count(&frame).or(said);
            outbox.push(frame);
        }
        assert!(outbox.bytes < WINDOW + 100_000);
        outbox.acknowledge(said.unwrap()).unwrap();
        assert!(outbox.has_room(), "the window is acknowledged in parts");
        outbox.acknowledge(inbox.received()).unwrap();
        assert_eq!(outbox.bytes, 0);
        assert_eq!(outbox.unacknowledged().len(), 0);
    }

    #[test]
    fn a_frame_fits_up_to_the_bound_and_below_it_one_of_any_size_is_taken() {
        let bound = Bound {
            bytes: 2 * (100 + OVERHEAD),
            frames: 3,
        };
        let frame = Frame::Control(vec![0; 100]);
        let mut outbox = Outbox::default();
        outbox.push(frame.clone());
        assert!(outbox.fits(&frame, bound) && outbox.is_below(bound));
        assert!(!outbox.fits(&Frame::Control(vec![0; 101]), bound));
        outbox.push(frame.clone());
        assert!(!outbox.fits(&frame, bound) && !outbox.is_below(bound));
        outbox.acknowledge(2).unwrap();
        for number in 0..3 {
            assert!(outbox.is_below(bound));
            outbox.push(numbered(number));
        }
        assert!(!outbox.is_below(bound) && !outbox.fits(&numbered(3), bound));
    }

    #[test]
    fn counts_that_cannot_be_are_refused() {
        let mut outbox = Outbox::default();
        outbox.push(numbered(0));
        outbox.push(numbered(1));
        assert!(outbox.acknowledge(3).is_err());
        outbox.acknowledge(2).unwrap();
        assert!(outbox.acknowledge(1).is_err());
        outbox.acknowledge(2).unwrap();
    }
}
