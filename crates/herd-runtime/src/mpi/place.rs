//! What a node needs for MPI: a host name of its own where several nodes share a machine, and a
//! directory with a short path for its socket, the host files and the program that stands for ssh.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use herd_core::spec::JobType;
use herd_link::message::Assign;
use nix::sched::CloneFlags;
use thiserror::Error;

use crate::rsh;

/// Longest path of a socket that the kernel takes (unix(7)), its last NUL aside.
const SOCKET_PATH_MAX: usize = 107;

/// Why a node cannot take part.
#[derive(Debug, Error)]
#[error("could not {what} {}", path.display())]
pub(crate) struct PlaceError {
    what: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Whether the job's nodes are emulated on one machine.
pub(crate) fn one_machine(assign: &Assign) -> bool {
    let first = assign.node_addresses.first();
    assign
        .node_addresses
        .iter()
        .all(|address| Some(address) == first)
}

/// Gives an emulated node of an MPI job the host name that it has in the job, since MPI tells nodes
/// apart by that. Processes that this one starts from here on have it, nobody else. Returns whether
/// it was needed and permitted.
pub(crate) fn name_node(assign: &Assign) -> bool {
    let name = assign.node_names.get(assign.node as usize);
    let needed =
        assign.plan.job_type == JobType::Mpi && assign.plan.nodes > 1 && one_machine(assign);
    needed
        && nix::sched::unshare(CloneFlags::CLONE_NEWUTS).is_ok()
        && name.is_some_and(|name| nix::unistd::sethostname(name).is_ok())
}

/// The node's directory, removed when dropped as far as nobody else uses it.
#[derive(Debug)]
pub(crate) struct Place {
    directory: PathBuf,
    socket: PathBuf,
}

impl Place {
    /// Makes the directory of this attempt. It is the user's alone.
    pub(crate) fn make(assign: &Assign) -> Result<Self, PlaceError> {
        let user = rustix::process::geteuid().as_raw();
        let attempt = format!("{}-{}", assign.plan.job, assign.plan.attempt);
        let within = |base: PathBuf| base.join(format!("herd-{user}")).join(&attempt);
        let name = socket_name(assign.node);
        let mut directory = within(std::env::temp_dir());
        // Open MPI splits the path of its remote shell at blanks.
        let text = directory.to_string_lossy();
        if text.contains(char::is_whitespace) || text.len() + name.len() >= SOCKET_PATH_MAX {
            directory = within(PathBuf::from("/tmp"));
        }
        for path in directory
            .ancestors()
            .take(2)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
        {
            own_directory(path, user).map_err(|source| PlaceError {
                what: "make the directory",
                path: path.to_owned(),
                source,
            })?;
        }
        let place = Self {
            socket: directory.join(name),
            directory,
        };
        place.link_remote_shell()?;
        Ok(place)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where this node's executor listens for its ranks.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// What stands for ssh.
    pub(crate) fn remote_shell(&self) -> PathBuf {
        self.directory.join(rsh::PROGRAM)
    }

    /// Writes a file of the job, such as a host file.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, PlaceError> {
        let path = self.directory.join(name);
        fs::write(&path, text).map_err(|source| PlaceError {
            what: "write",
            path: path.clone(),
            source,
        })?;
        Ok(path)
    }

    /// A link to this program, which behaves by its name; every node of the machine makes the same.
    fn link_remote_shell(&self) -> Result<(), PlaceError> {
        let path = self.remote_shell();
        let made = std::env::current_exe().and_then(|program| symlink(program, &path));
        match made {
            Err(source) if source.kind() != io::ErrorKind::AlreadyExists => Err(PlaceError {
                what: "link",
                path,
                source,
            }),
            _ => Ok(()),
        }
    }
}

/// The socket's name for a node.
pub(super) fn socket_name(node: u32) -> String {
    format!("node{node}.sock")
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.socket));
        // The last node of the machine to leave takes everything along.
        let others = fs::read_dir(&self.directory).is_ok_and(|entries| {
            entries
                .flatten()
                .any(|entry| entry.path().extension().is_some_and(|end| end == "sock"))
        });
        if !others {
            drop(fs::remove_dir_all(&self.directory));
        }
    }
}

/// Makes a directory that only its owner can enter, or finds that it is one.
fn own_directory(path: &Path, user: u32) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    let found = fs::symlink_metadata(path)?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it exists and is not this user's alone",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_others_can_enter_is_not_used() {
        let base = tempfile::tempdir().unwrap();
        let user = rustix::process::geteuid().as_raw();
        let path = base.path().join("own");
        own_directory(&path, user).unwrap();
        own_directory(&path, user).unwrap();
        let link = base.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(own_directory(&link, user).is_err());
        let open = base.path().join("open");
        DirBuilder::new().mode(0o755).create(&open).unwrap();
        assert!(own_directory(&open, user).is_err());
    }
}
