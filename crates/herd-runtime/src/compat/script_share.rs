//! A script in a file that only the driver's own node has (§15 number 7): the nodes that can read it pass
//! it on through the shared home to those that cannot (row 20). The copy is gone as soon as all have it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use tokio::time::{Instant, sleep};

use super::signal_files::{is_there, touch};

/// Pause between two looks.
const POLL: Duration = Duration::from_millis(100);
/// How long another node may take to pass the script on; network file systems show new files late.
const PASS_ON: Duration = Duration::from_mins(2);
/// Longest script.
const MOST: u64 = 64 * 1024 * 1024;

/// Why there is no script.
#[derive(Debug, Error)]
pub(super) enum ScriptError {
    #[error("could not read the script {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the script {} is longer than 64 MiB", .0.display())]
    TooLong(PathBuf),
    #[error(
        "could not read the script {}, and no other node of the step has passed it on within {} s\n\
         hint: put it where every node sees it, such as the cluster's home",
        path.display(), PASS_ON.as_secs()
    )]
    NotPassedOn {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Where the nodes of one step pass a script on.
#[derive(Clone, Debug)]
pub(super) struct Share {
    directory: PathBuf,
    rank: u32,
    nodes: u32,
}

impl Share {
    pub(super) fn new(home: &Path, step: &str, rank: u32, nodes: u32) -> Self {
        Self {
            directory: home.join(format!(".sky_script_{step}")),
            rank,
            nodes,
        }
    }

    /// The script, from its file or from another node.
    pub(super) async fn read(&self, path: &Path) -> Result<String, ScriptError> {
        match read_text(path) {
            Ok(text) => {
                // The others say it, should they need it and not get it.
                drop(self.publish(&text));
                Ok(text)
            }
            Err(ScriptError::Read { path, source }) => {
                let until = Instant::now() + PASS_ON;
                loop {
                    match read_text(&self.copy()) {
                        Ok(text) => {
                            drop(touch(&self.got(self.rank)));
                            return Ok(text);
                        }
                        Err(_not_yet) if Instant::now() < until => sleep(POLL).await,
                        Err(_late) => return Err(ScriptError::NotPassedOn { path, source }),
                    }
                }
            }
            Err(error) => Err(error),
        }
    }

    fn publish(&self, text: &str) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let draft = self.directory.join(format!("draft-{}", self.rank));
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        // Never half of it, whoever else has put it there.
        fs::rename(&draft, self.copy())?;
        touch(&self.got(self.rank))
    }

    /// At nodes that could read the file: removes the copy once all have it. Cancel-safe.
    pub(super) async fn collect(&self) {
        if !is_there(&self.copy()) {
            return;
        }
        while !(0..self.nodes).all(|rank| is_there(&self.got(rank))) {
            if !is_there(&self.copy()) {
                return;
            }
            sleep(POLL).await;
        }
        self.withdraw();
    }

    /// Removes the copy: this node's part is over.
    pub(super) fn withdraw(&self) {
        drop(fs::remove_dir_all(&self.directory));
    }

    fn copy(&self) -> PathBuf {
        self.directory.join("script")
    }

    fn got(&self, rank: u32) -> PathBuf {
        self.directory.join(format!("got-{rank}"))
    }
}

/// A script from a file.
pub(super) fn read_text(path: &Path) -> Result<String, ScriptError> {
    let failed = |source| ScriptError::Read {
        path: path.to_owned(),
        source,
    };
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    let read = file.take(MOST + 1).read_to_string(&mut text);
    let length = read.map_err(failed)?;
    if length as u64 > MOST {
        return Err(ScriptError::TooLong(path.to_owned()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn row_20_a_script_reaches_a_node_that_cannot_read_it_and_no_copy_stays() {
        let home = tempfile::tempdir().unwrap();
        let own = home.path().join("task.sh");
        let text = "x".repeat(200_000);
        fs::write(&own, &text).unwrap();
        let share = |rank| Share::new(home.path(), "7_1", rank, 2);
        let (with, without) = (share(0), share(1));
        let elsewhere = home.path().join("elsewhere.sh");
        let giving = async {
            let read = with.read(&own).await.unwrap();
            with.collect().await;
            read
        };
        let (given, passed_on) = tokio::join!(giving, without.read(&elsewhere));
        assert_eq!(given, text);
        assert_eq!(passed_on.unwrap(), text);
        assert!(!with.directory.exists());
    }
}
