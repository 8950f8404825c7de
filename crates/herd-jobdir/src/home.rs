//! `$HERD_HOME`: where all job directories lie.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use herd_core::JobId;

use crate::error::JobDirError;
use crate::files;
use crate::job::JobDir;

/// The directory above all jobs; private to its user.
#[derive(Clone, Debug)]
pub struct Home(PathBuf);

impl Home {
    /// The home that the environment names: `HERD_HOME`, else `XDG_STATE_HOME/herd`, else
    /// `~/.local/state/herd`.
    pub fn from_env() -> Result<Self, JobDirError> {
        Self::at(locate(&|name| std::env::var_os(name))?)
    }

    /// This directory, made 0700 where it does not exist. One that belongs to another user, or
    /// that everybody may write to, is refused.
    pub fn at(path: impl Into<PathBuf>) -> Result<Self, JobDirError> {
        let path = path.into();
        let path =
            std::path::absolute(&path).map_err(JobDirError::at("find the full path of", &path))?;
        files::create_dir(&path)?;
        let meta = fs::metadata(&path).map_err(JobDirError::at("look at", &path))?;
        let refusal = if meta.uid() != nix::unistd::geteuid().as_raw() {
            Some("it belongs to another user")
        } else if meta.mode() & 0o002 != 0 {
            Some("everybody may write to it")
        } else {
            None
        };
        match refusal {
            Some(reason) => Err(JobDirError::HomeRefused { path, reason }),
            None => Ok(Self(path)),
        }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// `jobs`.
    pub fn jobs_dir(&self) -> PathBuf {
        self.0.join("jobs")
    }

    /// Makes the directory of a new job; one that exists is an error.
    pub fn create(&self, id: JobId) -> Result<JobDir, JobDirError> {
        files::create_dir(&self.jobs_dir())?;
        let path = self.jobs_dir().join(id.to_string());
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => Ok(JobDir::new(path, id)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Err(JobDirError::AlreadyWritten(path))
            }
            Err(error) => Err(JobDirError::io("create directory", &path, error)),
        }
    }

    /// The directory of a job that exists.
    pub fn open(&self, id: JobId) -> Result<JobDir, JobDirError> {
        let path = self.jobs_dir().join(id.to_string());
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => Ok(JobDir::new(path, id)),
            Ok(_) => Err(JobDirError::NoSuchJob(id)),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(JobDirError::NoSuchJob(id)),
            Err(error) => Err(JobDirError::io("look at", &path, error)),
        }
    }

    /// All jobs, newest first.
    pub fn jobs(&self) -> Result<Vec<JobId>, JobDirError> {
        let directory = self.jobs_dir();
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(JobDirError::io("list", &directory, error)),
        };
        let mut ids: Vec<JobId> = entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        ids.sort_unstable_by(|a, b| b.cmp(a));
        Ok(ids)
    }
}

fn locate(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<PathBuf, JobDirError> {
    let filled = |name: &str| {
        variable(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(home) = filled("HERD_HOME") {
        return Ok(home);
    }
    // The base directory specification says that relative paths are to be ignored.
    if let Some(state) = filled("XDG_STATE_HOME").filter(|path| path.is_absolute()) {
        return Ok(state.join("herd"));
    }
    filled("HOME")
        .filter(|home| home.is_absolute())
        .map(|home| home.join(".local/state/herd"))
        .ok_or(JobDirError::NoHome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_environment_decides_and_relative_state_directories_are_ignored() {
        let with = |pairs: &'static [(&str, &str)]| {
            locate(&|name| {
                pairs
                    .iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| OsString::from(value))
            })
        };
        assert_eq!(
            with(&[("HERD_HOME", "/h"), ("XDG_STATE_HOME", "/state")]).unwrap(),
            Path::new("/h")
        );
        assert_eq!(
            with(&[
                ("HERD_HOME", ""),
                ("XDG_STATE_HOME", "/state"),
                ("HOME", "/u")
            ])
            .unwrap(),
            Path::new("/state/herd")
        );
        assert_eq!(
            with(&[("XDG_STATE_HOME", "state"), ("HOME", "/u")]).unwrap(),
            Path::new("/u/.local/state/herd")
        );
        for none in [&[][..], &[("HOME", "u")]] {
            assert!(matches!(with(none), Err(JobDirError::NoHome)));
        }
    }

    #[test]
    fn a_home_that_everybody_may_write_to_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path().join("a/b")).unwrap();
        assert_eq!(fs::metadata(home.path()).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(
            Home::at(home.path()),
            Err(JobDirError::HomeRefused { .. })
        ));
    }

    #[test]
    fn jobs_are_made_once_and_listed_newest_first() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path()).unwrap();
        assert!(home.jobs().unwrap().is_empty());
        let ids: Vec<JobId> = (0..3).map(|_| JobId::generate()).collect();
        for id in &ids {
            home.create(*id).unwrap();
        }
        assert_eq!(home.jobs().unwrap(), [ids[2], ids[1], ids[0]]);
        let absent = JobId::generate();
        assert!(matches!(home.open(absent), Err(JobDirError::NoSuchJob(_))));
        assert!(matches!(
            home.create(ids[0]),
            Err(JobDirError::AlreadyWritten(_))
        ));
    }
}
