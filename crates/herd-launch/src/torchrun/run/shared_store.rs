//! The store that all workers connect to, where node 0 is this one and serves it.

use crate::rendezvous::{Joined, MasterPort, Peer};
use crate::store::{Network, Notice, Options, Server, Support, support};
use crate::torchrun::flags::Flags;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// Whether the workers of this node can use a store of the launcher's, and why, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) has_store: bool,
    pub(super) why: String,
}

/// Looks at what the workers run; nothing is started.
pub(super) fn decide(
    interpreter: Option<&Path>,
    variable: &dyn Fn(&str) -> Option<OsString>,
    is_program: &dyn Fn(&Path) -> bool,
) -> Decision {
    let no = |why: String| Decision {
        has_store: false,
        why: format!("rank 0 opens the store of the workers: {why}"),
    };
    let Some(interpreter) = interpreter else {
        return no("the script is a program of its own".to_owned());
    };
    // torchrun's own way to say so.
    let separate = variable("TORCH_DISABLE_SHARE_RDZV_TCP_STORE");
    if separate.is_some_and(|value| value == "1") {
        return no("TORCH_DISABLE_SHARE_RDZV_TCP_STORE is 1".to_owned());
    }
    let names = ["PYTHONPATH", "PYTHONNOUSERSITE", "PYTHONUSERBASE", "HOME"];
    let values: Vec<(&str, Option<OsString>)> = names
        .map(|name| (name, variable(name)))
        .into_iter()
        .collect();
    let environment = |wanted: &str| {
        let found = values.iter().find(|(name, _)| *name == wanted);
        found.and_then(|(_, value)| value.as_deref())
    };
    let interpreter = on_path(interpreter, variable, is_program);
    let shown = interpreter.display();
    match support(&interpreter, environment) {
        Support::Known(version) => Decision {
            has_store: true,
            why: format!(
                "the launcher serves the store of the workers: torch {version} of {shown} knows it"
            ),
        },
        Support::TooOld(version) => no(format!("torch {version} of {shown} is older than 2.2")),
        Support::Unknown(why) => no(why),
        Support::Absent => no(format!("{shown} has no torch")),
    }
}

/// A program given by its name alone is looked for as it will be when it is started.
fn on_path(
    interpreter: &Path,
    variable: &dyn Fn(&str) -> Option<OsString>,
    is_program: &dyn Fn(&Path) -> bool,
) -> PathBuf {
    let is_name = interpreter.components().count() == 1 && interpreter.is_relative();
    let path = variable("PATH").filter(|_| is_name).unwrap_or_default();
    let mut candidates = std::env::split_paths(&path).map(|place| place.join(interpreter));
    let found = candidates.find(|candidate| is_program(candidate));
    found.unwrap_or_else(|| interpreter.to_owned())
}

/// The store of this node, if it has one.
#[derive(Debug)]
pub(super) struct SharedStore {
    allowed: Vec<Network>,
    server: Option<Server>,
}

impl SharedStore {
    pub(super) fn new(flags: &Flags) -> Self {
        Self {
            allowed: flags.store_allow.clone(),
            server: None,
        }
    }

    /// Makes it what the workers of an attempt need: an empty one that lets in the nodes of the
    /// attempt, or none. Returns the port that is to be free when workers start.
    pub(super) fn prepare(&mut self, joined: &mut Joined) -> io::Result<Option<MasterPort>> {
        let world = &joined.world;
        let master = joined.master.take();
        if !world.has_store || world.node_rank != 0 {
            self.server = None;
            return Ok(master);
        }
        match (master, &self.server) {
            (Some(master), _) => {
                let mut options = Options::default();
                let networks = self.allowed.iter().copied();
                for network in networks.chain(networks_of(&joined.peers)) {
                    options.peers.allow(network);
                }
                // The old port goes first: it may be the same.
                self.server = None;
                self.server = Some(Server::of(master.listen()?, options)?);
            }
            (None, Some(server)) => {
                server.reset();
                for network in networks_of(&joined.peers) {
                    server.allow(network);
                }
            }
            (None, None) => return Err(io::Error::other("its port was not handed over")),
        }
        Ok(None)
    }

    /// The next thing that a user may want to know; never where there is no store.
    pub(super) async fn notice(&mut self) -> Notice {
        match &mut self.server {
            Some(server) => server.notice().await,
            None => std::future::pending().await,
        }
    }
}

fn networks_of(peers: &[Peer]) -> impl Iterator<Item = Network> {
    let addresses = peers.iter().flat_map(|peer| &peer.addresses);
    addresses.map(|&address| Network::from(address))
}
