//! The coordinator's part in following the merged output: which bytes a client is sent next. Pure.

use herd_link::session::{CHUNK, WINDOW, follow};

/// Clients that follow at once.
pub(crate) const FOLLOWERS: usize = 16;

/// Lengths of the merged output's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lengths {
    pub(crate) log: u64,
    pub(crate) index: u64,
}

/// Bytes to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Which file, as [`follow`] numbers them.
    pub(crate) stream: u8,
    pub(crate) offset: u64,
    pub(crate) length: usize,
}

/// One client that follows.
///
/// It is sent what the files held at one moment, the text before the index, and only then what has
/// come since. So a client never has a record without its text.
#[derive(Debug)]
pub(crate) struct Follower {
    log: Part,
    index: Part,
}

impl Follower {
    /// One that has so much already; nothing where the files are not that long.
    pub(crate) fn new(has: Lengths, files: Lengths) -> Option<Self> {
        let fits = has.log <= files.log && has.index <= files.index;
        fits.then(|| Self {
            log: Part::new(has.log, files.log),
            index: Part::new(has.index, files.index),
        })
    }

    /// What to send now: it counts as sent. Nothing where the client has to take some first, or has all.
    pub(crate) fn next(&mut self) -> Option<Wanted> {
        if self.log.is_done() {
            self.index.next(follow::INDEX)
        } else {
            self.log.next(follow::LOG)
        }
    }

    /// Whether all that was known of has been sent.
    pub(crate) fn is_done(&self) -> bool {
        self.log.is_done() && self.index.is_done()
    }

    /// The files are so long now, of which the index was looked at first. Whether there is more to send.
    pub(crate) fn grown(&mut self, files: Lengths) -> bool {
        self.log.known = self.log.known.max(files.log);
        self.index.known = self.index.known.max(files.index);
        !self.is_done()
    }

    /// The client has taken bytes of a stream.
    pub(crate) fn taken(&mut self, stream: u8, bytes: u32) {
        let part = match stream {
            follow::LOG => &mut self.log,
            follow::INDEX => &mut self.index,
            _ => return,
        };
        part.under_way = part.under_way.saturating_sub(bytes as usize);
    }
}

#[derive(Debug)]
struct Part {
    sent: u64,
    known: u64,
    /// Sent and not taken.
    under_way: usize,
}

impl Part {
    fn new(sent: u64, known: u64) -> Self {
        Self {
            sent,
            known,
            under_way: 0,
        }
    }

    fn is_done(&self) -> bool {
        self.sent == self.known
    }

    fn next(&mut self, stream: u8) -> Option<Wanted> {
        let left = usize::try_from(self.known - self.sent).unwrap_or(usize::MAX);
        let length = left.min(CHUNK).min(WINDOW - self.under_way);
        if length == 0 {
            return None;
        }
        let offset = self.sent;
        self.sent += length as u64;
        self.under_way += length;
        Some(Wanted {
            stream,
            offset,
            length,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(log: u64, index: u64) -> Lengths {
        Lengths { log, index }
    }

    #[test]
    fn the_text_goes_before_its_index_however_much_comes_meanwhile() {
        let mut follower = Follower::new(lengths(0, 0), lengths(50_000, 64)).unwrap();
        let mut sent = lengths(0, 0);
        while let Some(wanted) = follower.next() {
            assert!(wanted.length <= CHUNK);
            if wanted.stream == follow::LOG {
                assert_eq!(wanted.offset, sent.log);
                sent.log += wanted.length as u64;
            } else {
                assert_eq!(sent.log, 50_000, "index before its text");
                sent.index += wanted.length as u64;
            }
        }
        assert_eq!(sent, lengths(50_000, 64));
        assert!(follower.is_done());
        assert!(!follower.grown(sent), "nothing has come");
        assert!(follower.grown(lengths(50_010, 96)));
        assert_eq!(
            follower.next(),
            Some(Wanted {
                stream: follow::LOG,
                offset: 50_000,
                length: 10
            })
        );
    }

    #[test]
    fn no_more_is_under_way_than_a_window() {
        let mut follower = Follower::new(lengths(0, 0), lengths(1 << 30, 1 << 20)).unwrap();
        let mut under_way = 0;
        while let Some(wanted) = follower.next() {
            under_way += wanted.length;
        }
        assert_eq!(under_way, WINDOW);
        follower.taken(follow::LOG, 10);
        assert_eq!(follower.next().map(|wanted| wanted.length), Some(10));
        follower.taken(follow::LOG, u32::MAX);
        follower.taken(9, u32::MAX);
        assert!(follower.next().is_some());
    }

    #[test]
    fn one_that_has_more_than_there_is_follows_something_else() {
        assert!(Follower::new(lengths(11, 0), lengths(10, 32)).is_none());
        assert!(Follower::new(lengths(10, 33), lengths(10, 32)).is_none());
        let mut all = Follower::new(lengths(10, 32), lengths(10, 32)).unwrap();
        assert!(all.is_done());
        assert_eq!(all.next(), None);
    }
}
