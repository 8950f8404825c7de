//! Shows what workers write: whole lines with the header of their rank, on the agent's own streams
//! and, where filters ask for them, in a file besides (launcher specification §4).
//!
//! A line is never torn, lost or doubled (D4). What is not yet a line waits for its end, and is shown
//! as it is when it has waited too long (D6). One thread writes; where it is behind, the files of the
//! workers hold what is not shown yet.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::lines::{Line, LineEnd, LineSplitter};

/// How long a line without its end is held.
const PARTIAL_AGE: Duration = Duration::from_secs(1);
/// Pieces of text that wait to be written.
const QUEUE: usize = 8;

/// A stream of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Screen {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Text for the writing thread.
struct Text {
    screen: Screen,
    bytes: Vec<u8>,
    /// Lines that a filter wants in its own file.
    filtered: Vec<u8>,
}

/// One stream of one worker.
struct Stream {
    header: String,
    splitter: LineSplitter,
    /// Since when part of a line is held.
    held_since: Option<Instant>,
}

/// Where a filter's lines go.
#[derive(Debug, Default)]
pub struct Filters {
    /// Lines with one of these are wanted.
    pub wanted: Vec<String>,
    /// Opened before the first worker starts.
    pub file: Option<File>,
}

/// The lines of all workers.
pub struct Tee {
    streams: BTreeMap<(Screen, u32), Stream>,
    wanted: BTreeMap<Screen, Vec<String>>,
    queue: Option<mpsc::Sender<Text>>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Tee {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tee")
            .field("streams", &self.streams.len())
            .finish_non_exhaustive()
    }
}

/// Room for one piece of text.
#[derive(Debug)]
pub struct Room(mpsc::OwnedPermit<Text>);

impl Tee {
    /// Starts the thread that writes.
    pub fn start(out: Filters, err: Filters) -> io::Result<Self> {
        let (queue, texts) = mpsc::channel(QUEUE);
        let wanted = BTreeMap::from([(Screen::Out, out.wanted), (Screen::Err, err.wanted)]);
        let thread = std::thread::Builder::new()
            .name("tee".to_owned())
            .spawn(move || write_all(texts, out.file, err.file))?;
        Ok(Self {
            streams: BTreeMap::new(),
            wanted,
            queue: Some(queue),
            thread: Some(thread),
        })
    }

    /// Shows a worker's stream from here on, each line behind `header`.
    pub fn add(&mut self, screen: Screen, rank: u32, header: String) {
        let stream = Stream {
            header,
            splitter: LineSplitter::new(),
            held_since: None,
        };
        self.streams.insert((screen, rank), stream);
    }

    /// Waits until there is room for more. Cancel-safe; for ever pending once the thread is gone.
    pub async fn room(&self) -> Room {
        match self.queue.clone() {
            Some(queue) => match queue.reserve_owned().await {
                Ok(permit) => Room(permit),
                Err(_gone) => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }

    /// Takes the next bytes of a stream.
    pub fn feed(&mut self, room: Room, screen: Screen, rank: u32, bytes: &[u8]) {
        let Some(stream) = self.streams.get_mut(&(screen, rank)) else {
            return;
        };
        let mut lines = Lines::new(&stream.header, self.wanted.get(&screen), bytes.len());
        stream.splitter.feed(bytes, |line| lines.push(&line));
        stream.held_since = match (stream.splitter.has_partial(), stream.held_since) {
            (true, None) => Some(Instant::now()),
            (true, since) if lines.text.is_empty() => since,
            (true, _) => Some(Instant::now()),
            (false, _) => None,
        };
        lines.send(room, screen);
    }

    /// When part of a line has waited long enough; none where nothing is held.
    pub fn due(&self) -> Option<Instant> {
        let held = self.streams.values().filter_map(|stream| stream.held_since);
        held.min().map(|since| since + PARTIAL_AGE)
    }

    /// Shows one line that has waited too long for its end.
    pub fn show_held(&mut self, room: Room) {
        let now = Instant::now();
        let late = self.streams.iter_mut().find(|(_, stream)| {
            stream
                .held_since
                .is_some_and(|since| now >= since + PARTIAL_AGE)
        });
        if let Some((&(screen, _), stream)) = late {
            stream.held_since = None;
            let mut lines = Lines::new(&stream.header, self.wanted.get(&screen), 0);
            stream.splitter.take_partial(|line| lines.push(&line));
            lines.send(room, screen);
        }
    }

    /// Shows words of the launcher itself between the workers' lines.
    pub fn say(room: Room, screen: Screen, text: String) {
        drop(room.0.send(Text {
            screen,
            bytes: text.into_bytes(),
            filtered: Vec::new(),
        }));
    }

    /// A stream has ended: what is left of it is shown.
    pub fn end(&mut self, room: Room, screen: Screen, rank: u32) {
        if let Some(mut stream) = self.streams.remove(&(screen, rank)) {
            let mut lines = Lines::new(&stream.header, self.wanted.get(&screen), 0);
            stream.splitter.finish(|line| lines.push(&line));
            lines.send(room, screen);
        }
    }

    /// Waits until everything was written.
    pub fn finish(mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // One that panicked has nothing more to write.
            drop(thread.join());
        }
    }
}

/// Lines of one stream on their way.
struct Lines<'a> {
    header: &'a str,
    wanted: Option<&'a Vec<String>>,
    text: Vec<u8>,
    filtered: Vec<u8>,
}

impl<'a> Lines<'a> {
    fn new(header: &'a str, wanted: Option<&'a Vec<String>>, length: usize) -> Self {
        Self {
            header,
            wanted: wanted.filter(|wanted| !wanted.is_empty()),
            text: Vec::with_capacity(length + length / 4),
            filtered: Vec::new(),
        }
    }

    fn push(&mut self, line: &Line<'_>) {
        let start = self.text.len();
        self.text.extend_from_slice(self.header.as_bytes());
        let line_start = self.text.len();
        // What is no UTF-8 is replaced, as people expect of a console.
        self.text
            .extend_from_slice(String::from_utf8_lossy(line.text).as_bytes());
        if line.end != LineEnd::Eof || !line.text.is_empty() {
            self.text.push(b'\n');
        }
        let Some(wanted) = self.wanted else { return };
        // The header goes along and is not looked at, as with torchrun.
        let said = &self.text[line_start..];
        let has = |part: &String| memchr::memmem::find(said, part.as_bytes()).is_some();
        if wanted.iter().any(has) {
            self.filtered.extend_from_slice(&self.text[start..]);
        }
    }

    fn send(self, room: Room, screen: Screen) {
        if !self.text.is_empty() {
            let (bytes, filtered) = (self.text, self.filtered);
            drop(room.0.send(Text {
                screen,
                bytes,
                filtered,
            }));
        }
    }
}

/// The thread. A stream that takes no more is given up; the workers' files have everything.
fn write_all(mut texts: mpsc::Receiver<Text>, mut out: Option<File>, mut err: Option<File>) {
    let mut closed = [false; 2];
    while let Some(text) = texts.blocking_recv() {
        let (written, filtered, closed) = match text.screen {
            Screen::Out if closed[0] => (Ok(()), &mut out, &mut closed[0]),
            Screen::Err if closed[1] => (Ok(()), &mut err, &mut closed[1]),
            Screen::Out => {
                let mut stdout = io::stdout().lock();
                let written = stdout.write_all(&text.bytes).and_then(|()| stdout.flush());
                (written, &mut out, &mut closed[0])
            }
            Screen::Err => (
                io::stderr().write_all(&text.bytes),
                &mut err,
                &mut closed[1],
            ),
        };
        if let Err(error) = written {
            *closed = true;
            // A reader that left has what it wanted.
            if matches!(text.screen, Screen::Out) && error.kind() != io::ErrorKind::BrokenPipe {
                let words = format!(
                    "herd launch: warning: standard output takes no more of the workers' lines: {error}; hint: with --log-dir all of them stay in files\n"
                );
                drop(io::stderr().write_all(words.as_bytes()));
            }
        }
        if let Some(file) = filtered {
            if !text.filtered.is_empty() && file.write_all(&text.filtered).is_err() {
                *filtered = None;
            }
        }
    }
}
