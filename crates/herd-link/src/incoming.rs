//! From received bytes to frames. Pure: it is given bytes and keeps its place between calls, which
//! is what makes [`crate::Receiver::recv`] safe to drop half way.

use crate::LinkError;
use crate::frame::{self, Decoded, Frame};
use crate::record::{self, Opener};

/// Room made for the first read after an idle time.
const SMALL_READ: usize = 4 * 1024;
/// Room made for a read while data keeps coming.
const LARGE_READ: usize = 128 * 1024;

/// What [`Incoming::next`] found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Frame(Frame),
    Closed,
    NeedMore,
}

/// Bytes on their way from the socket to a frame. Holds no memory while nothing is under way.
#[derive(Debug)]
pub(crate) struct Incoming {
    opener: Opener,
    /// Records as received, from `records_start`.
    records: Vec<u8>,
    records_start: usize,
    /// The frame stream as decrypted, from `stream_start`.
    stream: Vec<u8>,
    stream_start: usize,
    next_read: usize,
    closed: bool,
    skipped: u64,
}

impl Incoming {
    pub(crate) fn new(opener: Opener) -> Self {
        Self {
            opener,
            records: Vec::new(),
            records_start: 0,
            stream: Vec::new(),
            stream_start: 0,
            next_read: SMALL_READ,
            closed: false,
            skipped: 0,
        }
    }

    /// Frames of unknown kinds so far.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The next frame of the bytes received so far. Records are opened one at a time, so that no
    /// more than a frame and a record of plaintext is held.
    pub(crate) fn next(&mut self) -> Result<Step, LinkError> {
        loop {
            if self.closed {
                return Ok(Step::Closed);
            }
            match frame::decode(&self.stream[self.stream_start..])? {
                Decoded::Frame(frame, used) => {
                    self.stream_start += used;
                    return Ok(Step::Frame(frame));
                }
                Decoded::Unknown(used) => {
                    self.stream_start += used;
                    self.skipped += 1;
                }
                Decoded::Close => {
                    self.closed = true;
                    self.release_all();
                }
                Decoded::Incomplete => {
                    if !self.open_record()? {
                        return Ok(Step::NeedMore);
                    }
                }
            }
        }
    }

    /// Decrypts the next record, if all of it is here.
    fn open_record(&mut self) -> Result<bool, LinkError> {
        let received = &self.records[self.records_start..];
        let Some((length, rest)) = received.split_first_chunk::<{ record::LENGTH_BYTES }>() else {
            return Ok(false);
        };
        let length = usize::from(u16::from_be_bytes(*length));
        if length < record::TAG_BYTES {
            return Err(LinkError::ShortRecord { length });
        }
        let Some(sealed) = rest.get(..length) else {
            return Ok(false);
        };
        // At most the beginning of one frame is left, and it is moved once per frame.
        self.stream.drain(..self.stream_start);
        self.stream_start = 0;
        self.opener.open(sealed, &mut self.stream)?;
        self.records_start += record::LENGTH_BYTES + length;
        Ok(true)
    }

    /// Where the next received bytes are to be appended; has spare capacity for a read.
    pub(crate) fn space(&mut self) -> &mut Vec<u8> {
        self.records.drain(..self.records_start);
        self.records_start = 0;
        self.records.reserve(self.next_read);
        &mut self.records
    }

    /// Adapts the size of reads to what one of them brought.
    pub(crate) fn received(&mut self, bytes: usize) {
        if bytes >= self.next_read {
            self.next_read = (self.next_read * 4).min(LARGE_READ);
        } else if bytes < self.next_read / 4 {
            self.next_read = (self.next_read / 4).max(SMALL_READ);
        }
    }

    /// Gives memory back that holds nothing: called when there is nothing to read.
    pub(crate) fn release(&mut self) {
        if self.records_start == self.records.len() {
            self.records = Vec::new();
            self.records_start = 0;
        }
        if self.stream_start == self.stream.len() {
            self.stream = Vec::new();
            self.stream_start = 0;
        }
    }

    /// Gives all memory back: nothing more will be read.
    pub(crate) fn release_all(&mut self) {
        self.records.clear();
        self.records_start = 0;
        self.stream.clear();
        self.stream_start = 0;
        self.release();
    }

    #[cfg(test)]
    fn held(&self) -> usize {
        self.records.capacity() + self.stream.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::tests::{encoded, examples, pseudo_random};
    use crate::frame::{CLOSE, MAX_FRAME};
    use crate::handshake::tests::pair;
    use crate::record::Sealer;

    fn sealed(sealer: &mut Sealer, stream: &[u8], piece: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for part in stream.chunks(piece) {
            sealer.seal(part, &mut out).unwrap();
        }
        out
    }

    fn feed(
        incoming: &mut Incoming,
        bytes: &[u8],
        frames: &mut Vec<Frame>,
    ) -> Result<Step, LinkError> {
        incoming.space().extend_from_slice(bytes);
        loop {
            match incoming.next()? {
                Step::Frame(frame) => frames.push(frame),
                step => return Ok(step),
            }
        }
    }

    fn example_stream() -> Vec<u8> {
        let mut stream: Vec<u8> = examples().iter().flat_map(encoded).collect();
        stream.extend_from_slice(&CLOSE);
        stream
    }

    #[test]
    fn frames_survive_every_split_of_the_received_bytes() {
        for piece in [1, 7, 1000] {
            let (mut sealer, opener) = pair();
            let mut incoming = Incoming::new(opener);
            let mut frames = Vec::new();
            let bytes = sealed(&mut sealer, &example_stream(), piece);
            let mut last = Step::NeedMore;
            for byte in &bytes {
                last = feed(&mut incoming, &[*byte], &mut frames).unwrap();
            }
            assert_eq!(
                (last, frames),
                (Step::Closed, examples()),
                "records of {piece}"
            );
        }
        let total = {
            let (mut sealer, _) = pair();
            sealed(&mut sealer, &example_stream(), 50).len()
        };
        for cut in 0..=total {
            let (mut sealer, opener) = pair();
            let mut incoming = Incoming::new(opener);
            let mut frames = Vec::new();
            let bytes = sealed(&mut sealer, &example_stream(), 50);
            feed(&mut incoming, &bytes[..cut], &mut frames).unwrap();
            incoming.release();
            let last = feed(&mut incoming, &bytes[cut..], &mut frames).unwrap();
            assert_eq!((last, &frames), (Step::Closed, &examples()), "cut at {cut}");
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_gives_no_wrong_frame() {
        let (mut sealer, _) = pair();
        let total = sealed(&mut sealer, &example_stream(), 50).len();
        for place in 0..total {
            let (mut sealer, opener) = pair();
            let mut bytes = sealed(&mut sealer, &example_stream(), 50);
            bytes[place] ^= 1;
            let mut incoming = Incoming::new(opener);
            let mut frames = Vec::new();
            // A changed length may only make us wait; the end of the stream is then a truncation.
            let step = feed(&mut incoming, &bytes, &mut frames);
            assert!(
                matches!(step, Err(_) | Ok(Step::NeedMore)),
                "flip at {place}: {step:?}"
            );
            assert!(examples().starts_with(&frames), "flip at {place}");
        }
    }

    #[test]
    fn repeated_and_missing_records_do_not_authenticate() {
        let (mut sealer, opener) = pair();
        let first = sealed(&mut sealer, b"", 1).len();
        assert_eq!(first, 0);
        let mut one = Vec::new();
        sealer.seal(&encoded(&examples()[0]), &mut one).unwrap();
        let mut incoming = Incoming::new(opener);
        let mut frames = Vec::new();
        feed(&mut incoming, &one, &mut frames).unwrap();
        let again = feed(&mut incoming, &one, &mut frames);
        assert!(matches!(again, Err(LinkError::Record { record: 1, .. })));
    }

    #[test]
    fn a_frame_of_the_largest_size_passes_and_a_larger_one_is_refused() {
        let (mut sealer, opener) = pair();
        let mut incoming = Incoming::new(opener);
        let mut frames = Vec::new();
        let large = Frame::Control(vec![b'x'; MAX_FRAME - 1]);
        let bytes = sealed(&mut sealer, &encoded(&large), record::MAX_PLAINTEXT);
        for part in bytes.chunks(100_000) {
            feed(&mut incoming, part, &mut frames).unwrap();
        }
        assert!(frames == [large]);
        incoming.release();
        assert_eq!(incoming.held(), 0, "idle connections hold no buffers");

        let mut too_large = Vec::new();
        sealer.seal(&[0, 0x80, 0, 1], &mut too_large).unwrap();
        let refused = feed(&mut incoming, &too_large, &mut frames);
        assert!(matches!(refused, Err(LinkError::FrameLength { .. })));
    }

    #[test]
    fn unknown_kinds_are_skipped_and_counted() {
        let (mut sealer, opener) = pair();
        let mut incoming = Incoming::new(opener);
        let mut stream = vec![0, 0, 0, 3, 99, 1, 2];
        stream.extend(encoded(&examples()[0]));
        let bytes = sealed(&mut sealer, &stream, 1000);
        let mut frames = Vec::new();
        feed(&mut incoming, &bytes, &mut frames).unwrap();
        assert_eq!(
            (incoming.skipped(), frames),
            (1, vec![examples()[0].clone()])
        );
    }

    #[test]
    fn any_bytes_after_the_handshake_give_no_frame() {
        let mut random = pseudo_random(2);
        for _ in 0..500 {
            let (_, opener) = pair();
            let mut incoming = Incoming::new(opener);
            let mut frames = Vec::new();
            for _ in 0..20 {
                let bytes: Vec<u8> = (0..random() % 60)
                    .map(|_| random().to_le_bytes()[2])
                    .collect();
                if feed(&mut incoming, &bytes, &mut frames).is_err() {
                    break;
                }
            }
            assert!(frames.is_empty());
        }
    }
}
