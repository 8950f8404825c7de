//! Whether a program can be started, for one who starts it by way of another program.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{Access, access};

use super::{SpawnError, candidates};

/// Looks where [`super::spawn`] would with this environment and directory. What it finds may still
/// fail to start, by its format or its interpreter.
pub fn look_for_program(
    program: &OsStr,
    env: &[(OsString, OsString)],
    cwd: &Path,
) -> Result<(), SpawnError> {
    let mut there = false;
    for candidate in candidates(program, env)? {
        let path = cwd.join(OsStr::from_bytes(candidate.to_bytes()));
        if path.is_file() && access(&path, Access::EXEC_OK).is_ok() {
            return Ok(());
        }
        there |= path.exists();
    }
    let program = program.to_owned();
    Err(if there {
        let source = io::ErrorKind::PermissionDenied.into();
        SpawnError::NotExecutable { program, source }
    } else {
        let source = io::Error::from_raw_os_error(nix::libc::ENOENT);
        SpawnError::NotFound { program, source }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_started_is_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("plain"), "x").unwrap();
        let env = [("PATH".into(), "/nonexistent:/usr/bin:/bin".into())];
        let look = |program: &str| look_for_program(program.as_ref(), &env, directory.path());
        assert!(look("sh").is_ok());
        assert!(matches!(look("./none"), Err(SpawnError::NotFound { .. })));
        assert!(matches!(
            look("no-such-program-anywhere"),
            Err(SpawnError::NotFound { .. })
        ));
        for program in ["./plain", "./"] {
            let found = look(program);
            assert!(
                matches!(found, Err(SpawnError::NotExecutable { .. })),
                "{found:?}"
            );
        }
    }
}
