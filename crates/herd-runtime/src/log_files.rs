//! The log files of ranks and setup where the driver has them at hand: executors tell how far they
//! have grown, and no byte but each file's first ones travels over the link. By those a file is
//! known again: what a rank wrote after it had truncated its file is not taken for what was there
//! before.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use herd_jobdir::AttemptDir;
use herd_launch::follow::{Head, open_log};

use crate::merge::{LAUNCHER_STREAM, SETUP_RANK};

/// Bytes read at once.
const READ_BYTES: usize = 256 * 1024;

/// A stream: node, rank and the stream's number.
pub(crate) type Source = (usize, u32, u8);

/// How far a file has grown, and how much of it was read, since its beginning or its truncation.
#[derive(Clone, Debug, Default)]
struct Progress {
    told: u64,
    read: u64,
    head: Head,
}

/// The files of one attempt. No file stays open: there may be thousands, most of them empty.
#[derive(Debug, Default)]
pub(crate) struct LogFiles {
    attempt: Option<AttemptDir>,
    nodes: Vec<String>,
    /// Which of them share no directory with the driver.
    apart: Vec<bool>,
    progress: BTreeMap<Source, Progress>,
    buffer: Vec<u8>,
}

impl LogFiles {
    pub(crate) fn new(attempt: AttemptDir, nodes: Vec<String>, apart: Vec<bool>) -> Self {
        Self {
            attempt: Some(attempt),
            nodes,
            apart,
            ..Self::default()
        }
    }

    /// Notes bytes of a stream that came over the link.
    pub(crate) fn came(&mut self, source: Source, offset: u64, bytes: &[u8]) {
        let progress = self.progress.entry(source).or_default();
        progress.head.extend(offset, bytes);
        progress.read = offset.saturating_add(bytes.len() as u64);
        progress.told = progress.told.max(progress.read);
        if self.apart.get(source.0) == Some(&true)
            && let Some(path) = self.path(source)
        {
            // It is a copy. Where the disk is full, the merged log is what tells.
            drop(write_at(&path, offset, bytes));
        }
    }

    /// The file was truncated: what is told from now on is told of its new beginning.
    pub(crate) fn begin_again(&mut self, source: Source) {
        self.progress.remove(&source);
    }

    /// Gives out the bytes of a stream that were not given out yet, up to `length` of the file.
    ///
    /// What cannot be read now is read when the next length is told, or at the end. A file that is
    /// shorter than told, or begins differently, was truncated by its rank since: what was told is
    /// gone, and that it is will be told next.
    pub(crate) fn read(&mut self, source: Source, length: u64, mut each: impl FnMut(&[u8])) {
        let Some(path) = self.path(source) else {
            return;
        };
        let progress = self.progress.entry(source).or_default();
        progress.told = progress.told.max(length);
        let Ok(file) = open_log(&path) else {
            return;
        };
        self.buffer.resize(READ_BYTES, 0);
        while progress.read < progress.told {
            let wanted = usize::try_from(progress.told - progress.read).unwrap_or(usize::MAX);
            let room = self.buffer.get_mut(..wanted.min(READ_BYTES));
            match file.read_at(room.unwrap_or_default(), progress.read) {
                // Compared after reading, or it could be truncated in between.
                Ok(count) if count > 0 && progress.head.begins(&file).unwrap_or(false) => {
                    progress.read += count as u64;
                    each(self.buffer.get(..count).unwrap_or_default());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Streams of which less was read than told.
    pub(crate) fn behind(&self) -> Vec<Source> {
        let behind = |progress: &Progress| progress.read < progress.told;
        self.progress
            .iter()
            .filter(|(_, progress)| behind(progress))
            .map(|(&source, _)| source)
            .collect()
    }

    /// The file of a stream. All of the path is the driver's own: a peer names numbers only.
    fn path(&self, (node, rank, stream): Source) -> Option<PathBuf> {
        let attempt = self.attempt.as_ref()?;
        if rank == SETUP_RANK {
            let name = self.nodes.get(node)?;
            let file = if stream == LAUNCHER_STREAM {
                "mpirun.log"
            } else {
                "setup.log"
            };
            return Some(attempt.path().join("nodes").join(name).join(file));
        }
        let logs = attempt.rank_logs(rank);
        Some(if stream == 1 {
            logs.stdout
        } else {
            logs.stderr
        })
    }
}

/// Writes a part of a log; one that begins anew loses what it held.
fn write_at(path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(offset == 0)
        .mode(0o600)
        .open(path)?;
    file.write_all_at(bytes, offset)
}

/// What a person is told of a truncation.
pub(crate) fn truncation(source: Source) -> String {
    let (node, rank, stream) = source;
    let (who, file) = match (rank, stream) {
        (SETUP_RANK, LAUNCHER_STREAM) => (format!("mpirun on node {node}"), "mpirun.log"),
        (SETUP_RANK, _) => (format!("setup on node {node}"), "setup.log"),
        (_, 1) => (format!("rank {rank}"), "stdout.log"),
        _ => (format!("rank {rank}"), "stderr.log"),
    };
    format!(
        "{who} truncated its {file}, as `> /dev/stdout` and `> /dev/stderr` do: earlier output \
         that was not shown yet is lost; hint: write to >&1 or >&2"
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use herd_jobdir::Home;

    use super::*;

    struct Fixture {
        _home: tempfile::TempDir,
        attempt: AttemptDir,
    }

    impl Fixture {
        fn files(&self, nodes: &[&str]) -> LogFiles {
            let nodes = nodes.iter().map(|&node| node.to_owned()).collect();
            LogFiles::new(self.attempt.clone(), nodes, Vec::new())
        }
    }

    fn fixture() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path().join("home")).unwrap();
        let attempt = home
            .create(herd_core::JobId::generate())
            .unwrap()
            .attempt(1);
        attempt.create().unwrap();
        Fixture {
            _home: directory,
            attempt,
        }
    }

    fn read(files: &mut LogFiles, source: Source, length: u64) -> Vec<u8> {
        let mut all = Vec::new();
        files.read(source, length, |bytes| all.extend_from_slice(bytes));
        all
    }

    #[test]
    fn i7_each_byte_is_given_out_once_and_none_beyond_what_was_told() {
        let fixture = fixture();
        let logs = fixture.attempt.create_rank(3).unwrap();
        let mut files = fixture.files(&["node0"]);
        let text: Vec<u8> = (0..=250).cycle().take(READ_BYTES * 2 + 7).collect();
        fs::write(&logs.stdout, &text).unwrap();
        let source = (0, 3, 1);
        assert_eq!(read(&mut files, source, 5), text[..5]);
        assert_eq!(read(&mut files, source, 5), b"");
        assert_eq!(read(&mut files, source, 3), b"");
        let all = text.len() as u64;
        assert_eq!(read(&mut files, source, all), text[5..]);
        let mut log = fs::File::options().append(true).open(&logs.stdout).unwrap();
        log.write_all(b"more").unwrap();
        assert_eq!(read(&mut files, source, all), b"");
        assert_eq!(read(&mut files, source, all + 4), b"more");
        assert!(files.behind().is_empty());
    }

    #[test]
    fn i7_what_follows_a_truncation_is_not_taken_for_what_was_before() {
        let fixture = fixture();
        let logs = fixture.attempt.create_rank(0).unwrap();
        let mut files = fixture.files(&["node0"]);
        let source = (0, 0, 1);
        for round in 0..3 {
            let text = format!("{round}{}", "x".repeat(999));
            fs::write(&logs.stdout, &text).unwrap();
            files.came(source, 0, &text.as_bytes()[..512]);
            assert_eq!(read(&mut files, source, 600), text.as_bytes()[512..600]);
            // Truncated and longer than told before the length is looked at.
            fs::write(&logs.stdout, "y".repeat(2000)).unwrap();
            assert_eq!(read(&mut files, source, 1000), b"");
            fs::write(&logs.stdout, "short").unwrap();
            assert_eq!(read(&mut files, source, 1000), b"");
            files.begin_again(source);
            files.came(source, 0, b"short");
            assert_eq!(read(&mut files, source, 5), b"");
            assert!(files.behind().is_empty());
            files.begin_again(source);
        }
    }

    #[test]
    fn i7_what_cannot_be_read_now_is_read_later() {
        let fixture = fixture();
        let setup = fixture.attempt.setup_log("node0").unwrap();
        let mut files = fixture.files(&["node0"]);
        let source = (0, SETUP_RANK, 0);
        assert_eq!(read(&mut files, source, 4), b"");
        assert_eq!(files.behind(), [source]);
        fs::write(setup, "text").unwrap();
        assert_eq!(read(&mut files, source, 0), b"text");
        assert!(files.behind().is_empty());
    }

    #[test]
    fn a_peer_names_no_file_of_its_choice() {
        let fixture = fixture();
        let mut files = fixture.files(&[]);
        assert_eq!(read(&mut files, (7, SETUP_RANK, 0), 4), b"");
        assert_eq!(read(&mut files, (7, 12_345, 9), 4), b"");
        // A pipe in a log's place must not hold up the driver.
        let logs = fixture.attempt.create_rank(0).unwrap();
        nix::unistd::mkfifo(&logs.stdout, nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert_eq!(read(&mut files, (0, 0, 1), 4), b"");
    }
}
