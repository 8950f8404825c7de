//! How the launchers of one job find each other and agree, for each attempt, on who runs which ranks
//! and where workers meet.
//!
//! - [`Backend::Standalone`]: one node, no network.
//! - [`Backend::C10d`]: the launcher on the machine that the endpoint names serves it, to itself as
//!   to the others, over the encrypted link. Whoever comes first on that machine does. Rounds, late
//!   nodes and those that stand by are the membership's affair. Workers meet at a port of their
//!   own on node 0.
//! - [`Backend::Static`]: as many nodes as were given, each with its rank. Launchers meet at the very
//!   port at which workers will: before any worker starts the port is free for it, and when all nodes
//!   are there no more connections are needed. The connections stay, for the exit barrier and the
//!   news of a peer's failure; the listening socket becomes that of the store or is closed. So this
//!   backend needs no port besides the one that users open and choose so that neighbours' jobs do not
//!   clash (a port derived from it would be a neighbour's).
//!
//! The launcher that serves the endpoint is the rendezvous: with it, it is lost, and all nodes end.
//!
//! **Key.** With one, only those who have it take part, and what they say is encrypted. Without one
//! everything is the same under a key that is written in this program: whoever reaches the endpoint
//! and knows the id can take part. That is said once ([`Notice::NoKey`]) unless the endpoint is on
//! loopback.

mod error;
mod hub;
mod key;
mod machine;
mod master_port;
mod meet;
mod member;
mod membership;
mod message;
mod notice;
mod outcome;
mod ranks;
mod settings;
mod surroundings;
mod waiting;

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout, timeout_at};

pub use error::RendezvousError;
pub use key::read_key;
pub use master_port::MasterPort;
pub use message::Peer;
pub use notice::Notice;
pub use outcome::{Change, Finish, Joined};
pub use settings::{
    Backend, C10D_PORT, Endpoint, MAX_LOCAL_SIZE, MAX_NODES, OnNotice, Settings, Timeouts,
};
pub use surroundings::{Found, Surroundings};

use crate::world::World;
use hub::Hub;
use machine::{Machine, is_localhost};
use meet::Trouble;
use member::{End, Member};
use message::{Assignment, Hello, MAX_REASON, ToHost, VERSION, bounded};
use outcome::{change, ended, joined};
use waiting::Waiting;

/// For nodes to hear of an end that they only need to be told.
const FAREWELL: Duration = Duration::from_secs(5);

/// One node's part in a rendezvous. Dropping it looks to the others as if this node had died.
#[derive(Debug)]
pub struct Rendezvous {
    settings: Settings,
    machine: Machine,
    hub: Option<Hub>,
    member: Option<Member>,
    /// Where workers of other nodes reach this one; known once the endpoint was reached.
    address: String,
    /// The newest round this node had a part in; 0 before the first.
    round: u64,
    waiting: Option<Waiting>,
    /// Taken for the next round, should this become node 0.
    master: Option<MasterPort>,
    /// The port of the store that this node serves as node 0: it stays over restarts.
    serving: Option<u16>,
    /// What one node alone was given before.
    alone: Option<World>,
    warned: bool,
    /// What failed here since the newest round began.
    reason: Option<String>,
}

impl Rendezvous {
    /// Checks the settings. Nothing is sent or opened yet.
    pub fn new(settings: Settings) -> Result<Self, RendezvousError> {
        settings.check()?;
        Ok(Self {
            settings,
            machine: Machine::look(),
            hub: None,
            member: None,
            address: String::new(),
            round: 0,
            waiting: None,
            master: None,
            serving: None,
            alone: None,
            warned: false,
            reason: None,
        })
    }

    /// Waits for the next attempt's nodes. None of this node's workers may run; `restarts` have been
    /// counted here so far.
    ///
    /// Cancel-safe: called again it goes on, its time-out included.
    pub async fn join(&mut self, restarts: u32) -> Result<Joined, RendezvousError> {
        if self.is_alone() {
            return self.join_alone(restarts);
        }
        let joined = self.join_others(restarts).await;
        self.waiting = None;
        joined
    }

    /// Waits for something at other nodes that this one must act on; for ever, if there is nothing.
    /// The same is said again until the next [`Self::join`].
    pub async fn changed(&mut self) -> Change {
        let round = self.round;
        loop {
            let Some(member) = &mut self.member else {
                return std::future::pending().await;
            };
            let view = member.view();
            if let Some(change) = change(round, view.end, view.disturbed) {
                return change;
            }
            member.changed().await;
        }
    }

    /// A worker failed here and will be started again: the other nodes begin to stop theirs now.
    /// [`Self::join`] follows once this node's have ended.
    pub fn restart(&mut self, reason: &str) {
        let reason = bounded(reason, MAX_REASON);
        self.reason = Some(reason.clone());
        let round = self.round;
        self.wish(ToHost::Restart { round, reason });
    }

    /// A worker failed here for good: the other nodes begin to end theirs now, with this reason.
    /// [`Self::fail`] follows once this node's have ended.
    pub fn failing(&mut self, reason: &str) {
        self.wish(ToHost::Failed {
            reason: bounded(reason, MAX_REASON),
        });
    }

    /// A worker failed here for good: the other nodes end too, with this reason. Returns when they
    /// have been told, after [`Timeouts::close`] at the latest.
    pub async fn fail(&mut self, reason: &str) {
        self.failing(reason);
        self.end(self.settings.timeouts.close).await;
    }

    /// All workers are done here: waits for the other nodes, so that all leave together, at most
    /// [`Timeouts::exit_barrier`].
    pub async fn finish(&mut self) -> Finish {
        let after = self.settings.timeouts.exit_barrier;
        self.wish(ToHost::Finished { round: self.round });
        let finish = match timeout(after, self.released()).await {
            Ok(finish) => finish,
            Err(_elapsed) => Finish::TimedOut { after },
        };
        if let (Finish::TimedOut { .. }, Some(member)) = (&finish, &self.member) {
            member.wish(ToHost::Leave);
        }
        self.end(self.settings.timeouts.close.min(FAREWELL)).await;
        finish
    }

    /// This node goes, because it was told to; the others may go on without it.
    pub async fn leave(&mut self) {
        self.wish(ToHost::Leave);
        self.end(FAREWELL).await;
    }

    fn wish(&self, wish: ToHost) {
        if let Some(member) = &self.member {
            member.wish(wish);
        }
    }

    /// Waits until this node's last wish was answered by an end, and all others have heard theirs.
    async fn end(&mut self, bound: Duration) {
        let deadline = Instant::now() + bound;
        if let Some(member) = &mut self.member {
            member.ended(bound).await;
        }
        if let Some(hub) = self.hub.take() {
            hub.end(deadline.saturating_duration_since(Instant::now()))
                .await;
        }
    }

    async fn released(&mut self) -> Finish {
        let round = self.round;
        loop {
            let Some(member) = &mut self.member else {
                return Finish::Together;
            };
            let view = member.view();
            match (view.end, view.disturbed) {
                (None, _) => member.changed().await,
                (Some(End::Released), disturbed) => {
                    let change = change(round, None, disturbed);
                    let gone = change.filter(|change| matches!(change, Change::PeerGone { .. }));
                    return gone.map_or(Finish::Together, Finish::Disturbed);
                }
                (Some(end), disturbed) => {
                    let change = change(round, Some(end), disturbed);
                    return change.map_or(Finish::Together, Finish::Disturbed);
                }
            }
        }
    }

    /// Whether no other node can take part.
    fn is_alone(&self) -> bool {
        let Settings {
            backend, max_nodes, ..
        } = self.settings;
        match backend {
            Backend::Standalone => true,
            Backend::Static => max_nodes == 1,
            Backend::C10d => max_nodes == 1 && self.settings.port() == Some(0),
        }
    }

    fn join_alone(&mut self, restarts: u32) -> Result<Joined, RendezvousError> {
        let Settings {
            backend,
            endpoint,
            local_addr,
            local_size,
            has_store,
            ..
        } = &self.settings;
        let is_fixed = *backend == Backend::Static;
        let address = match (backend, local_addr) {
            (Backend::Static, _) => endpoint.host.clone(),
            (_, Some(address)) => address.clone(),
            // No name is more certain to be this machine.
            (_, None) => "127.0.0.1".into(),
        };
        // A store, and a port that the user has chosen, stay over restarts.
        let kept = self.alone.take().filter(|_| is_fixed || *has_store);
        let master = if kept.is_none() {
            let port = endpoint.port.filter(|_| is_fixed).unwrap_or(0);
            Some(take_port(&address, port)?)
        } else {
            None
        };
        let number = master.as_ref().map(MasterPort::number);
        let world = World {
            node_rank: 0,
            nodes: 1,
            first_rank: 0,
            world_size: *local_size,
            first_role_rank: 0,
            role_world_size: *local_size,
            master_port: kept.map(|kept| kept.master_port).or(number).unwrap_or(0),
            master_addr: address,
            has_store: *has_store,
        };
        self.alone = Some(world.clone());
        Ok(Joined {
            world,
            restarts,
            peers: Vec::new(),
            master,
        })
    }

    async fn join_others(&mut self, restarts: u32) -> Result<Joined, RendezvousError> {
        if self.settings.key.is_none()
            && !self.warned
            && !is_localhost(&self.settings.endpoint.host)
        {
            self.warned = true;
            let endpoint = self.settings.place().to_string();
            (self.settings.on_notice)(Notice::NoKey { endpoint });
        }
        let begun = Waiting::new(&self.settings);
        self.waiting.get_or_insert(begun);
        if self.member.is_none() {
            self.connect().await?;
        }
        let is_c10d = self.settings.backend == Backend::C10d;
        if is_c10d && self.master.is_none() && self.serving.is_none() {
            self.master = Some(take_port(&self.address, 0)?);
        }
        let round = self.round;
        let taken = self.master.as_ref().map(MasterPort::number);
        let port = self.serving.or(taken).unwrap_or(0);
        self.wish(ToHost::Join {
            round,
            restarts,
            port,
            has_store: self.settings.has_store,
            reason: self.reason.clone(),
        });
        let assignment = self.assigned().await?;
        self.round = assignment.round;
        self.reason = None;
        let is_first = assignment.node_rank == 0;
        let master = match self.settings.backend {
            Backend::Static if is_first => self.door(&assignment).await?,
            _ => self.master.take().filter(|_| is_first),
        };
        let serves = is_c10d && is_first && assignment.has_store;
        self.serving = serves.then_some(assignment.master_port);
        Ok(joined(assignment, master))
    }

    /// A connection to the endpoint, within the time to join.
    async fn connect(&mut self) -> Result<(), RendezvousError> {
        let Some(waiting) = &mut self.waiting else {
            return Ok(());
        };
        let met = loop {
            // Boxed, so that whoever waits in `join` need not hold a handshake's buffers.
            let mut trying = Box::pin(meet::meet(&self.settings, &self.machine, &mut self.hub));
            let tried = loop {
                tokio::select! {
                    tried = &mut trying => break tried,
                    () = sleep_until(waiting.next()) => waiting.pass(&self.settings)?,
                }
            };
            match tried {
                Ok(met) => break met,
                Err(Trouble::Fatal(error)) => return Err(error),
                Err(Trouble::Passing { what, refused }) => {
                    let again = waiting.failed(&self.settings, what, refused)?;
                    while Instant::now() < again {
                        let next = again.min(waiting.next());
                        sleep_until(next).await;
                        waiting.pass(&self.settings)?;
                    }
                }
            }
        };
        let address = self.settings.local_addr.clone().unwrap_or(met.address);
        let node_rank = self.settings.node_rank;
        let hello = Hello {
            version: VERSION,
            name: self.machine.name.clone(),
            pid: std::process::id(),
            address,
            addresses: self.machine.addresses.iter().copied().collect(),
            local_size: self.settings.local_size,
            role: self.settings.role.clone(),
            min_nodes: self.settings.min_nodes,
            max_nodes: self.settings.max_nodes,
            node_rank: (self.settings.backend == Backend::Static).then_some(node_rank),
        };
        self.address.clone_from(&hello.address);
        let lost = self.settings.timeouts.lost;
        self.member = Some(Member::start(met.link, hello, lost));
        Ok(())
    }

    /// Waits for a round with this node after the one it knows.
    async fn assigned(&mut self) -> Result<Assignment, RendezvousError> {
        let (Some(member), Some(waiting)) = (&mut self.member, &mut self.waiting) else {
            return Err(RendezvousError::Settings("not connected".into()));
        };
        loop {
            let view = member.view();
            let assignment = view.world.filter(|world| world.round > self.round);
            if let Some(end) = view.end {
                return Err(ended(&self.settings, end));
            }
            if let Some(assignment) = assignment {
                return Ok(assignment);
            }
            if let Some(gathering) = &view.gathering {
                waiting.gather(&self.settings, gathering);
            }
            tokio::select! {
                () = member.changed() => {}
                () = sleep_until(waiting.next()) => waiting.pass(&self.settings)?,
            }
        }
    }

    /// The socket at which launchers met, on its way to a store; the port was given before or is free
    /// for rank 0 to open, in which case there is none.
    async fn door(
        &mut self,
        assignment: &Assignment,
    ) -> Result<Option<MasterPort>, RendezvousError> {
        let Some(hub) = &mut self.hub else {
            return Ok(None);
        };
        let deadline = Instant::now() + FAREWELL;
        let socket = timeout_at(deadline, hub.door()).await.unwrap_or_default();
        let port = socket.map(MasterPort::of).transpose();
        port.map_err(|source| RendezvousError::MasterPort {
            address: assignment.master_addr.clone(),
            port: assignment.master_port,
            source,
        })
    }
}

fn take_port(address: &str, port: u16) -> Result<MasterPort, RendezvousError> {
    MasterPort::take(address, port).map_err(|source| RendezvousError::MasterPort {
        address: address.to_owned(),
        port,
        source,
    })
}
