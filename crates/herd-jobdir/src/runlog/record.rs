//! One record of `run.index`: 32 bytes, little-endian.

/// Name of the text beneath the job's directory.
pub const DATA_NAME: &str = "run.log";
/// Name of the index beneath the job's directory.
pub const INDEX_NAME: &str = "run.index";
/// Size of a record in the file.
pub const RECORD_BYTES: usize = 32;
/// Longest piece one record covers; the writer splits longer ones.
pub const MAX_PIECE_BYTES: usize = 1 << 20;
/// In place of a rank: setup, or herd itself.
pub const HERD: u32 = u32::MAX;
/// Flag: every line that begins in the piece begins with the prefix.
pub const PREFIXED: u8 = 1;
/// Flag: the piece begins in the middle of a line, which has its prefix further up.
pub const CONTINUATION: u8 = 2;

/// Where a piece came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// Herd's own words.
    Herd,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What is known of one contiguous piece from one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it was merged, milliseconds since the Unix epoch.
    pub time_ms: u64,
    /// Where it begins in `run.log`.
    pub offset: u64,
    /// Its length in bytes, prefixes included.
    pub length: u32,
    /// Global rank, or [`HERD`].
    pub rank: u32,
    /// Node index.
    pub node: u32,
    /// Which of its streams.
    pub stream: Stream,
    /// [`PREFIXED`] and [`CONTINUATION`].
    pub flags: u8,
    /// Length of the prefix at the beginning of each line.
    pub prefix_len: u16,
}

impl Record {
    /// The rank, where the piece came from one.
    pub fn rank(&self) -> Option<u32> {
        (self.rank != HERD).then_some(self.rank)
    }

    /// Whether it begins in the middle of a line.
    pub fn is_continuation(&self) -> bool {
        self.flags & CONTINUATION != 0
    }

    /// Bytes of prefix at the beginning of each line.
    pub fn prefix_bytes(&self) -> usize {
        if self.flags & PREFIXED != 0 {
            usize::from(self.prefix_len)
        } else {
            0
        }
    }

    pub(super) fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[0..8].copy_from_slice(&self.time_ms.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.length.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.rank.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.node.to_le_bytes());
        bytes[28] = match self.stream {
            Stream::Herd => 0,
            Stream::Stdout => 1,
            Stream::Stderr => 2,
        };
        bytes[29] = self.flags;
        bytes[30..32].copy_from_slice(&self.prefix_len.to_le_bytes());
        bytes
    }

    /// From its bytes in the index.
    pub fn decode(bytes: &[u8; RECORD_BYTES]) -> Self {
        let u64_at = |at: usize| u64::from_le_bytes(take(bytes, at));
        let u32_at = |at: usize| u32::from_le_bytes(take(bytes, at));
        Self {
            time_ms: u64_at(0),
            offset: u64_at(8),
            length: u32_at(16),
            rank: u32_at(20),
            node: u32_at(24),
            stream: match bytes[28] {
                1 => Stream::Stdout,
                2 => Stream::Stderr,
                _ => Stream::Herd,
            },
            flags: bytes[29],
            prefix_len: u16::from_le_bytes(take(bytes, 30)),
        }
    }
}

fn take<const N: usize>(bytes: &[u8; RECORD_BYTES], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_as_it_was_and_the_layout_is_fixed() {
        let record = Record {
            time_ms: 0x0102_0304_0506_0708,
            offset: 1 << 40,
            length: 77,
            rank: HERD,
            node: 3,
            stream: Stream::Stderr,
            flags: PREFIXED | CONTINUATION,
            prefix_len: 0x0a0b,
        };
        let bytes = record.encode();
        assert_eq!(Record::decode(&bytes), record);
        assert_eq!(bytes[0..8], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(bytes[16..20], [77, 0, 0, 0]);
        assert_eq!(bytes[20..24], [255; 4]);
        assert_eq!(bytes[28..32], [2, 3, 0x0b, 0x0a]);
    }
}
