//! The job's directory on a node that shares none with the others: room for what the node's ranks write,
//! and its end.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use herd_link::Key;
use herd_link::message::Assign;

use crate::rank_files::RankFiles;

/// File that only the driver's node has in it.
const DRIVERS: &str = "ready";

/// Makes the directories of the node's logs, and the file with the job's key for what runs inside the job.
/// What cannot be made is told by the first that needs it.
pub(crate) fn make_room(assign: &Assign, key: &Key) {
    let attempt = Path::new(&assign.attempt_dir);
    let name = assign.node_names.get(assign.node as usize);
    let mut wanted: Vec<_> = name
        .map(|name| attempt.join("nodes").join(name))
        .into_iter()
        .collect();
    for local in 0..assign.plan.ranks_per_node {
        let files = RankFiles::of(attempt, assign.first_rank + local);
        wanted.extend(files.stdout.parent().map(Path::to_owned));
    }
    for directory in wanted {
        drop(
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory),
        );
    }
    drop(write_key(Path::new(&assign.key_file), key));
}

fn write_key(path: &Path, key: &Key) -> io::Result<()> {
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(key.to_hex().as_bytes())
}

/// Removes the directory, unless the driver is here and still needs it.
pub(crate) fn remove(directory: &Path) {
    if !directory.join(DRIVERS).exists() {
        // Nobody is left who could do something about it.
        drop(fs::remove_dir_all(directory));
    }
}
