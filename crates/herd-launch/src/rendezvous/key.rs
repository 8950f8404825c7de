//! The secret that the nodes of a job share.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use herd_link::Key;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use zeroize::Zeroizing;

use super::RendezvousError;

/// More than a key is never read.
const MOST: u64 = 256;
/// How long a pipe may say nothing.
const PATIENCE: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// The key from `HERD_RDZV_KEY`'s value, else from the file that `key_file` of `--rdzv-conf` names;
/// none where neither is given. An empty variable is none.
pub fn read_key(
    variable: Option<&str>,
    file: Option<&Path>,
) -> Result<Option<Key>, RendezvousError> {
    let bad = |from: String| move |source| RendezvousError::Key { from, source };
    if let Some(text) = variable.filter(|text| !text.is_empty()) {
        let key = Key::from_hex(text).map_err(bad("HERD_RDZV_KEY".into()))?;
        return Ok(Some(key));
    }
    let Some(path) = file else {
        return Ok(None);
    };
    let text = read_file(path).map_err(|source| RendezvousError::KeyFile {
        path: path.to_owned(),
        source,
    })?;
    let key = Key::from_hex(&text).map_err(bad(format!("file {}", path.display())))?;
    Ok(Some(key))
}

/// The beginning of a file. A pipe, such as a shell's `<(…)`, is waited for, but not for ever: this is before
/// signals are acted on.
fn read_file(path: &Path) -> io::Result<Zeroizing<String>> {
    let mut options = OpenOptions::new();
    // A pipe that nobody writes would be waited for when it is opened.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let file = options.read(true).custom_flags(nonblocking).open(path)?;
    let mut text = Zeroizing::new(String::new());
    let mut rest = file.take(MOST);
    loop {
        match rest.read_to_string(&mut text) {
            Ok(_) => return Ok(text),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let mut ready = [PollFd::new(rest.get_ref(), PollFlags::IN)];
        if rustix::event::poll(&mut ready, Some(&PATIENCE))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i12_a_key_comes_from_the_environment_or_a_file_and_shows_in_no_error() {
        let digits = "ab".repeat(32);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        std::fs::write(&path, format!("{digits}\n")).unwrap();
        assert!(read_key(None, None).unwrap().is_none());
        assert!(read_key(Some(""), None).unwrap().is_none());
        let of_file = read_key(None, Some(&path)).unwrap().unwrap();
        assert_eq!(*of_file.to_hex(), digits);
        let other = "cd".repeat(32);
        let of_both = read_key(Some(&other), Some(&path)).unwrap().unwrap();
        assert_eq!(*of_both.to_hex(), other);
        let wrong = read_key(Some("secret"), None).unwrap_err();
        let shown = format!("{wrong} {wrong:?}");
        assert!(shown.contains("HERD_RDZV_KEY") && !shown.contains("secret"));
        // A pipe without a writer is read at once, to its end.
        let pipe = directory.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        read_key(None, Some(&pipe)).unwrap_err();
        let missing = read_key(None, Some(Path::new("/nonexistent/key"))).unwrap_err();
        assert!(missing.to_string().contains("/nonexistent/key"));
    }
}
