//! Reaching the endpoint: serving it where it is this machine, connecting to it in any case. One try.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use herd_link::{Channel, Key, LinkError, Receiver, Sender};
use tokio::net::lookup_host;
use tokio::time::timeout;

use super::hub::Hub;
use super::machine::{Machine, from_here, is_localhost, on_the_way_to};
use super::membership::Rules;
use super::{Backend, RendezvousError, Settings};

/// For a name to be resolved.
const RESOLVE: Duration = Duration::from_secs(10);
/// For one connection with its handshake.
const CONNECT: Duration = Duration::from_secs(5);
/// Most addresses of one name that are tried.
const MAX_ADDRESSES: usize = 8;

/// A key that is none: it keeps nobody out who wants in, only apart those who share an id.
const NO_KEY: &str = "6865726420746f726368656c617374696320776974686f75742061206b657900";

/// Why a try did not succeed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It never will.
    Fatal(RendezvousError),
    /// It may later.
    Passing {
        /// What went wrong.
        what: String,
        /// Somebody is there and does not accept this node.
        refused: bool,
    },
}

/// A connection to the endpoint.
#[derive(Debug)]
pub(super) struct Met {
    pub(super) link: (Sender, Receiver),
    /// Where workers of other nodes reach this one, unless the user said it.
    pub(super) address: String,
}

/// The key of a rendezvous, and the channel that its id makes.
pub(super) fn secrets(settings: &Settings) -> Result<(Key, Channel), RendezvousError> {
    let key = match &settings.key {
        Some(key) => key.clone(),
        None => Key::from_hex(NO_KEY).map_err(|source| RendezvousError::Key {
            from: "the program".into(),
            source,
        })?,
    };
    let channel = Channel {
        job: format!("rendezvous|{}", settings.id),
        attempt: 0,
    };
    Ok((key, channel))
}

/// Serves the endpoint where it is here and nobody does, and connects to it.
pub(super) async fn meet(
    settings: &Settings,
    machine: &Machine,
    hub: &mut Option<Hub>,
) -> Result<Met, Trouble> {
    let passing = |what: String| Trouble::Passing {
        what,
        refused: false,
    };
    let (host, port) = (settings.endpoint.host.as_str(), settings.port());
    let port = port.unwrap_or_default();
    let place = settings.place();
    let resolved = resolve(host).await;
    let known = resolved.as_deref().unwrap_or_default();
    let (key, channel) = secrets(settings).map_err(Trouble::Fatal)?;
    let mut addresses: Vec<SocketAddr> = Vec::new();
    if hub.is_none() && serves(settings, machine, known) {
        let address = SocketAddr::new(machine.listen_on(host, known), port);
        let lost = settings.timeouts.lost;
        match Hub::start(address, &key, &channel, rules(settings), lost).await {
            Ok(started) => *hub = Some(started),
            // Another launcher of this machine may be the one that serves it, and is here whatever
            // the name resolves to.
            Err(LinkError::Bind { source, .. })
                if source.kind() == io::ErrorKind::AddrInUse && may_be_a_peer(settings) =>
            {
                addresses.push(from_here(address));
            }
            Err(source) => {
                return Err(Trouble::Fatal(RendezvousError::Serve {
                    endpoint: place.to_string(),
                    source,
                }));
            }
        }
    }
    match (hub.as_ref(), resolved) {
        (Some(hub), _) => addresses.push(from_here(hub.address())),
        (None, Err(what)) if addresses.is_empty() => return Err(passing(what)),
        (None, found) => {
            let found = found.unwrap_or_default().into_iter().take(MAX_ADDRESSES);
            addresses.extend(found.map(|ip| SocketAddr::new(ip, port)));
            addresses.dedup();
        }
    }
    let mut trouble = passing(format!("{host} has no address"));
    for address in addresses {
        match herd_link::connect(address, &key, &channel, CONNECT).await {
            Ok(link) => {
                let address = own_address(host, address);
                return Ok(Met { link, address });
            }
            Err(error) => trouble = explain(&place.to_string(), &error),
        }
    }
    Err(trouble)
}

async fn resolve(host: &str) -> Result<Vec<IpAddr>, String> {
    if host.eq_ignore_ascii_case("localhost") {
        // Whatever the system says of IPv6: all launchers here must mean the same address.
        return Ok(vec![Ipv4Addr::LOCALHOST.into()]);
    }
    let what = match timeout(RESOLVE, lookup_host((host, 0))).await {
        Ok(Ok(addresses)) => return Ok(addresses.map(|found| found.ip()).collect()),
        Ok(Err(error)) => error.to_string(),
        Err(_elapsed) => format!("no answer within {} s", RESOLVE.as_secs()),
    };
    Err(format!("resolving {host}: {what}"))
}

fn explain(place: &str, error: &LinkError) -> Trouble {
    let refused = matches!(error, LinkError::Refused | LinkError::Handshake(_));
    let what = match error {
        LinkError::Connect { address, source } => {
            format!("connecting to {place} ({address}): {source}")
        }
        _ if refused => format!(
            "whatever listens at {place} does not accept this node (another HERD_RDZV_KEY or \
             --rdzv-id, or another program)"
        ),
        error => format!("connecting to {place}: {error}"),
    };
    Trouble::Passing { what, refused }
}

/// Whether this launcher is the one to serve the endpoint.
fn serves(settings: &Settings, machine: &Machine, resolved: &[IpAddr]) -> bool {
    match settings.backend {
        Backend::Standalone => false,
        Backend::Static => settings.node_rank == 0,
        Backend::C10d => settings
            .is_host
            .unwrap_or_else(|| machine.is(&settings.endpoint.host, resolved)),
    }
}

fn may_be_a_peer(settings: &Settings) -> bool {
    settings.backend == Backend::C10d && settings.is_host != Some(true)
}

fn rules(settings: &Settings) -> Rules {
    let fixed = (settings.backend == Backend::Static).then(|| {
        let port = settings.port().unwrap_or_default();
        (settings.endpoint.host.clone(), port)
    });
    Rules {
        min_nodes: match settings.backend {
            Backend::Static => settings.max_nodes,
            _ => settings.min_nodes,
        },
        max_nodes: settings.max_nodes,
        last_call: settings.timeouts.last_call,
        fixed,
    }
}

/// Where other nodes reach this one: the address with which it reaches the endpoint, which needs no
/// name to be known elsewhere. Where that is loopback this machine has the endpoint, and is what the
/// others call it.
fn own_address(host: &str, endpoint: SocketAddr) -> String {
    let own = on_the_way_to(endpoint).filter(|address| !address.is_loopback());
    match own {
        Some(address) if !endpoint.ip().is_loopback() => address.to_string(),
        // `localhost` may be two addresses, only one of which is listened on.
        _ if is_localhost(host) && host.parse::<IpAddr>().is_err() => "127.0.0.1".into(),
        _ => host.to_owned(),
    }
}
