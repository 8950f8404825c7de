//! What a rendezvous is told before it begins, and where a launcher finds it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use herd_link::Key;

use super::{Notice, RendezvousError};

/// Port of a c10d endpoint that names none, as torchrun has it.
pub const C10D_PORT: u16 = 29_400;
/// Most nodes of one job.
pub const MAX_NODES: u32 = 65_535;
/// Most workers of one node.
pub const MAX_LOCAL_SIZE: u32 = 32_768;
/// Longest rendezvous id, role and name in bytes.
pub(super) const MAX_TEXT: usize = 512;

/// How nodes find each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// One node and no network: workers meet on loopback.
    Standalone,
    /// A fixed set of nodes with given ranks; node rank 0 is met at the endpoint.
    Static,
    /// As many nodes as come, between a least and a most; one of them serves the endpoint.
    C10d,
}

impl Backend {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::Static => "static",
            Self::C10d => "c10d",
        }
    }
}

/// Where launchers meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Host name or address; an IPv6 address without brackets.
    pub host: String,
    /// Port, where one was given.
    pub port: Option<u16>,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]", self.host)?;
        } else {
            formatter.write_str(&self.host)?;
        }
        self.port
            .map_or(Ok(()), |port| write!(formatter, ":{port}"))
    }
}

/// Bounds of the waits of a rendezvous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From a node's first try to meet the others until it gives up.
    pub join: Duration,
    /// For more nodes once the least number has come.
    pub last_call: Duration,
    /// For the others to hear that the rendezvous ends.
    pub close: Duration,
    /// Silence after which a node, or who serves the endpoint, counts as lost.
    pub lost: Duration,
    /// For the other nodes to finish once this one has.
    pub exit_barrier: Duration,
    /// Until somebody who is waited for is named; again from time to time.
    pub notice: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            join: Duration::from_mins(10),
            last_call: Duration::from_secs(30),
            close: Duration::from_secs(30),
            lost: Duration::from_secs(15),
            exit_barrier: Duration::from_mins(5),
            notice: Duration::from_secs(10),
        }
    }
}

impl Timeouts {
    /// The defaults for `backend` with what `--rdzv-conf` says: `timeout` and `join_timeout`,
    /// `last_call_timeout`, `close_timeout`, and `keep_alive_interval` times
    /// `keep_alive_max_attempt`, in seconds. Other keys are not looked at.
    pub fn from_conf<'a>(
        backend: Backend,
        conf: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, RendezvousError> {
        let mut timeouts = Self::default();
        if backend == Backend::Static {
            timeouts.join = Duration::from_mins(15);
        }
        let (mut interval, mut attempts) = (5.0, 3.0);
        for (key, value) in conf {
            let seconds = || number(key, value);
            match key {
                "join_timeout" => timeouts.join = Duration::from_secs_f64(seconds()?),
                "timeout" if backend == Backend::Static => {
                    timeouts.join = Duration::from_secs_f64(seconds()?);
                }
                "last_call_timeout" => timeouts.last_call = Duration::from_secs_f64(seconds()?),
                "close_timeout" => timeouts.close = Duration::from_secs_f64(seconds()?),
                "keep_alive_interval" => interval = seconds()?,
                "keep_alive_max_attempt" => attempts = seconds()?,
                _ => {}
            }
        }
        let lost = (interval * attempts).clamp(SHORTEST_LOST, LONGEST);
        timeouts.lost = Duration::from_secs_f64(lost);
        Ok(timeouts)
    }
}

/// Ten days: longer waits are mistakes, and clocks add up safely.
const LONGEST: f64 = 864_000.0;

/// Seconds after which a node that is only busy, since it speaks each second, might be taken for
/// lost.
const SHORTEST_LOST: f64 = 3.0;

fn number(key: &str, value: &str) -> Result<f64, RendezvousError> {
    let number = value.trim().parse::<f64>().ok();
    number
        .filter(|number| (0.0..=LONGEST).contains(number))
        .ok_or_else(|| RendezvousError::Conf {
            key: key.to_owned(),
            value: value.to_owned(),
        })
}

/// Who hears what a user should know while nodes wait.
pub type OnNotice = Arc<dyn Fn(Notice) + Send + Sync>;

/// All that one node brings to a rendezvous.
#[derive(Clone)]
pub struct Settings {
    /// How nodes find each other.
    pub backend: Backend,
    /// Where; not looked at by [`Backend::Standalone`].
    pub endpoint: Endpoint,
    /// Which job: nodes with other ids do not meet.
    pub id: String,
    /// Least number of nodes.
    pub min_nodes: u32,
    /// Most nodes; the number of them where the backend is static.
    pub max_nodes: u32,
    /// This node's rank, where the backend is static.
    pub node_rank: u32,
    /// The address to tell the others for workers to meet at; found out where there is none.
    pub local_addr: Option<String>,
    /// Whether this launcher serves a c10d endpoint; found out where nothing is said.
    pub is_host: Option<bool>,
    /// Workers of this node.
    pub local_size: u32,
    /// Their role.
    pub role: String,
    /// Whether this node's workers can use a store that a launcher serves.
    pub has_store: bool,
    /// The secret all nodes of the job share. Without one whoever reaches the endpoint and knows the
    /// id can take part.
    pub key: Option<Key>,
    /// Bounds of waits.
    pub timeouts: Timeouts,
    /// Hears of peers that are missing and of a rendezvous without a key.
    pub on_notice: OnNotice,
}

impl Settings {
    /// A standalone node with `local_size` workers, to be changed from there.
    pub fn new(local_size: u32) -> Self {
        Self {
            backend: Backend::Standalone,
            endpoint: Endpoint {
                host: "localhost".into(),
                port: None,
            },
            id: "none".into(),
            min_nodes: 1,
            max_nodes: 1,
            node_rank: 0,
            local_addr: None,
            is_host: None,
            local_size,
            role: "default".into(),
            has_store: false,
            key: None,
            timeouts: Timeouts::default(),
            on_notice: Arc::new(|_notice| {}),
        }
    }

    /// The port of the endpoint, its default included.
    pub(super) fn port(&self) -> Option<u16> {
        match self.backend {
            Backend::C10d => Some(self.endpoint.port.unwrap_or(C10D_PORT)),
            Backend::Static | Backend::Standalone => self.endpoint.port,
        }
    }

    /// The endpoint with its port, for messages.
    pub(super) fn place(&self) -> Endpoint {
        Endpoint {
            host: self.endpoint.host.clone(),
            port: self.port(),
        }
    }

    /// What can never work is refused before anything is tried.
    pub(super) fn check(&self) -> Result<(), RendezvousError> {
        let bad = |what: String| Err(RendezvousError::Settings(what));
        if self.min_nodes == 0 || self.min_nodes > self.max_nodes || self.max_nodes > MAX_NODES {
            return bad(format!(
                "{}:{} nodes; 1 <= MIN <= MAX <= {MAX_NODES} is needed",
                self.min_nodes, self.max_nodes
            ));
        }
        if self.local_size == 0 || self.local_size > MAX_LOCAL_SIZE {
            return bad(format!(
                "{} workers on this node; 1 to {MAX_LOCAL_SIZE} are possible",
                self.local_size
            ));
        }
        let texts = [
            ("id", Some(&self.id)),
            ("role", Some(&self.role)),
            ("local address", self.local_addr.as_ref()),
        ];
        for (name, text) in texts {
            if text.is_some_and(|text| !is_fit(text)) {
                return bad(format!(
                    "the {name} is longer than {MAX_TEXT} bytes or has control characters"
                ));
            }
        }
        match (self.backend, self.port()) {
            (Backend::Static, None) => bad(format!(
                "endpoint {} of the static backend has no port",
                self.endpoint
            )),
            (Backend::Static, Some(0)) if self.max_nodes > 1 => {
                bad("port 0 of the static backend with several nodes".into())
            }
            (Backend::Static, _) if self.node_rank >= self.max_nodes => bad(format!(
                "node rank {} of {} nodes; ranks count from 0",
                self.node_rank, self.max_nodes
            )),
            (Backend::C10d, Some(0)) if self.min_nodes > 1 => {
                bad("port 0 of the c10d backend: no other node could find it".into())
            }
            _ => Ok(()),
        }
    }
}

/// Whether a text may be told to other nodes and put into their workers' environment.
pub(super) fn is_fit(text: &str) -> bool {
    text.len() <= MAX_TEXT && !text.contains(char::is_control)
}

impl fmt::Debug for Settings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Settings")
            .field("backend", &self.backend)
            .field("endpoint", &self.endpoint)
            .field("id", &self.id)
            .field("nodes", &(self.min_nodes, self.max_nodes))
            .field("node_rank", &self.node_rank)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conf_sets_time_outs_and_tolerates_other_keys() {
        let conf = [
            ("join_timeout", "7"),
            ("last_call_timeout", "0.5"),
            ("close_timeout", "3"),
            ("keep_alive_interval", "2"),
            ("keep_alive_max_attempt", "4"),
            ("read_timeout", "what"),
        ];
        let timeouts = Timeouts::from_conf(Backend::C10d, conf).unwrap();
        assert_eq!(timeouts.join, Duration::from_secs(7));
        assert_eq!(timeouts.last_call, Duration::from_millis(500));
        assert_eq!(timeouts.close, Duration::from_secs(3));
        assert_eq!(timeouts.lost, Duration::from_secs(8));
        let hasty = [("keep_alive_interval", "0")];
        let hasty = Timeouts::from_conf(Backend::C10d, hasty).unwrap();
        assert_eq!(hasty.lost, Duration::from_secs(3));
        let of = |backend, conf: &[(&'static str, &'static str)]| {
            Timeouts::from_conf(backend, conf.iter().copied()).map(|timeouts| timeouts.join)
        };
        assert_eq!(of(Backend::Static, &[]).unwrap(), Duration::from_mins(15));
        assert_eq!(
            of(Backend::Static, &[("timeout", "9")]).unwrap(),
            Duration::from_secs(9)
        );
        for bad in ["", "x", "-1", "NaN", "inf", "1e300"] {
            of(Backend::C10d, &[("join_timeout", bad)]).unwrap_err();
        }
    }

    #[test]
    fn what_can_never_work_is_refused() {
        let good = || Settings {
            backend: Backend::Static,
            endpoint: Endpoint {
                host: "h0".into(),
                port: Some(29_500),
            },
            min_nodes: 2,
            max_nodes: 2,
            ..Settings::new(1)
        };
        good().check().unwrap();
        let changes: [fn(&mut Settings); 8] = [
            |settings| settings.endpoint.port = None,
            |settings| settings.node_rank = 2,
            |settings| settings.min_nodes = 3,
            |settings| settings.local_size = 0,
            |settings| settings.id = "x".repeat(600),
            |settings| settings.local_addr = Some("h0\nh1".into()),
            |settings| settings.endpoint.port = Some(0),
            |settings| settings.max_nodes = u32::MAX,
        ];
        for change in changes {
            let mut settings = good();
            change(&mut settings);
            settings.check().unwrap_err();
        }
    }
}
