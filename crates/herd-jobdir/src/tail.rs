//! The end of what a process wrote.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes of the end of a stream that are looked at for its last lines.
const TAIL_BYTES: u64 = 8 * 1024;
/// Lines kept of a failed process.
const LAST_LINES: usize = 20;

/// The last lines of a file, bounded in bytes and lines; nothing where it cannot be read.
pub fn last_lines(path: &Path) -> Vec<String> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..]
        .iter()
        .map(|&line| line.to_owned())
        .collect()
}
