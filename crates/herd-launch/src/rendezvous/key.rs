//! The secret that the nodes of a job share.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use herd_link::Key;
use zeroize::Zeroizing;

use super::RendezvousError;

/// More than a key is never read.
const MOST: u64 = 256;

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
    let mut text = Zeroizing::new(String::new());
    File::open(path)
        .and_then(|file| file.take(MOST).read_to_string(&mut text))
        .map_err(|source| RendezvousError::KeyFile {
            path: path.to_owned(),
            source,
        })?;
    let key = Key::from_hex(&text).map_err(bad(format!("file {}", path.display())))?;
    Ok(Some(key))
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
        let missing = read_key(None, Some(Path::new("/nonexistent/key"))).unwrap_err();
        assert!(missing.to_string().contains("/nonexistent/key"));
    }
}
