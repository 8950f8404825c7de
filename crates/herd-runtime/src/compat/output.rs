//! The output of a script (§6): whole lines, as they are, into the log; with a prefix to this process's own
//! stream, which `srun` passes on. A redrawn progress bar is a line each time.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use herd_launch::lines::{Line, LineEnd, LineSplitter};
use herd_launch::sys;
use tokio::task::spawn_blocking;

/// Bytes read at once.
const CHUNK: usize = 64 * 1024;
/// What bash says when it is interactive and has no terminal.
const NO_TERMINAL: [&str; 2] = [
    "bash: cannot set terminal process group",
    "bash: no job control in this shell",
];

/// One of this process's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

/// Reads a pipe to its end. What `srun` takes slowly the script writes slowly.
pub(super) async fn relay(
    pipe: OwnedFd,
    log: Arc<File>,
    prefix: String,
    to: Stream,
) -> io::Result<()> {
    rustix::io::ioctl_fionbio(&pipe, true)?;
    let pipe = sys::watch_stream(pipe)?;
    let mut lines = Lines::new(prefix);
    let mut buffer = vec![0; CHUNK];
    loop {
        let mut ready = pipe.readable().await?;
        match ready.try_io(|pipe| Ok(rustix::io::read(pipe.get_ref(), &mut buffer)?)) {
            Ok(Ok(0)) => break,
            Ok(Ok(length)) => lines.take(buffer.get(..length).unwrap_or_default()),
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(Err(error)) => return Err(error),
            Err(_would_block) => {}
        }
        lines.write(&log, to).await;
    }
    lines.finish();
    lines.write(&log, to).await;
    Ok(())
}

/// What has been read and not been written.
#[derive(Debug)]
struct Lines {
    prefix: String,
    splitter: LineSplitter,
    /// The last piece did not end its line.
    within: bool,
    logged: Vec<u8>,
    shown: Vec<u8>,
}

impl Lines {
    fn new(prefix: String) -> Self {
        Self {
            prefix,
            splitter: LineSplitter::new(),
            within: false,
            logged: Vec::new(),
            shown: Vec::new(),
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        let mut splitter = std::mem::take(&mut self.splitter);
        splitter.feed(bytes, |line| self.add(line));
        self.splitter = splitter;
    }

    fn finish(&mut self) {
        let mut splitter = std::mem::take(&mut self.splitter);
        splitter.finish(|line| self.add(line));
    }

    fn add(&mut self, line: Line<'_>) {
        let text = String::from_utf8_lossy(line.text);
        if NO_TERMINAL.iter().any(|words| text.starts_with(words)) {
            return;
        }
        if !self.within {
            self.shown.extend_from_slice(self.prefix.as_bytes());
        }
        self.within = line.end == LineEnd::Split;
        let end: &[u8] = if self.within { b"" } else { b"\n" };
        for sink in [&mut self.logged, &mut self.shown] {
            sink.extend_from_slice(text.as_bytes());
            sink.extend_from_slice(end);
        }
    }

    /// Neither a full disk nor a closed stream stops the script: the other still gets everything.
    async fn write(&mut self, mut log: &File, to: Stream) {
        drop(log.write_all(&self.logged));
        self.logged.clear();
        let shown = std::mem::take(&mut self.shown);
        if shown.is_empty() {
            return;
        }
        // A reader that takes nothing must not keep this process from hearing a signal.
        let written = spawn_blocking(move || match to {
            Stream::Out => {
                let mut out = io::stdout();
                out.write_all(&shown).and_then(|()| out.flush())
            }
            Stream::Err => io::stderr().write_all(&shown),
        });
        drop(written.await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(pieces: &[&[u8]]) -> (String, String) {
        let mut lines = Lines::new("> ".to_owned());
        for piece in pieces {
            lines.take(piece);
        }
        lines.finish();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (text(&lines.logged), text(&lines.shown))
    }

    #[test]
    fn row_5_and_23_lines_are_whole_and_prefixes_are_not_in_the_log() {
        let (logged, shown) = both(&[b"a\nb", b"c\r 50%\r", b"\n99%\xff\r\nend"]);
        assert_eq!(logged, "a\nbc\n 50%\n99%\u{fffd}\nend\n");
        assert_eq!(shown, "> a\n> bc\n>  50%\n> 99%\u{fffd}\n> end\n");
    }

    #[test]
    fn what_bash_says_without_a_terminal_is_left_out() {
        let said = b"bash: cannot set terminal process group (7): Inappropriate ioctl for device\n\
                     bash: no job control in this shell\nmine\n";
        assert_eq!(both(&[said]).0, "mine\n");
    }

    #[test]
    fn a_very_long_line_has_one_prefix() {
        let long = vec![b'x'; 200_000];
        let (logged, shown) = both(&[&long, b"\n"]);
        assert_eq!(logged.len(), 200_001);
        assert_eq!(shown.matches('>').count(), 1);
    }
}
