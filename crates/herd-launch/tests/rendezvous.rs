//! Launchers that meet over loopback: each node is a task with a rendezvous of its own.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use herd_launch::rendezvous::{
    Backend, Change, Endpoint, Finish, Joined, Notice, Rendezvous, RendezvousError, Settings,
};
use herd_link::{Channel, Key, Listener};
use tokio::time::{Instant, timeout};

/// Nothing here takes long; a hang is a failure.
const SOON: Duration = Duration::from_mins(1);

/// An endpoint that no other test uses: Linux has the whole of 127/8 on loopback.
fn endpoint() -> Endpoint {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let [high, low] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let process = std::process::id() % 200 + 20;
    let port = 20_000 + u16::try_from(std::process::id() / 200 % 10_000).unwrap();
    Endpoint {
        host: format!("127.{process}.{high}.{}", low + 1),
        port: Some(port),
    }
}

/// A node whose waits are short.
fn node(backend: Backend, endpoint: &Endpoint, nodes: (u32, u32)) -> Settings {
    let mut settings = Settings::new(2);
    settings.backend = backend;
    settings.endpoint = endpoint.clone();
    settings.id = "job".into();
    (settings.min_nodes, settings.max_nodes) = nodes;
    settings.has_store = true;
    settings.key = Some(key());
    settings.timeouts.last_call = Duration::from_millis(300);
    settings.timeouts.join = SOON;
    settings.timeouts.lost = Duration::from_secs(4);
    settings
}

/// A node of two, told whether it serves the endpoint.
fn of_two(endpoint: &Endpoint, is_host: bool) -> Settings {
    let mut settings = node(Backend::C10d, endpoint, (2, 2));
    settings.is_host = Some(is_host);
    settings
}

fn key() -> Key {
    Key::from_hex(&"5a".repeat(32)).unwrap()
}

/// The channel of nodes with the id and without a key of their own.
fn channel() -> Channel {
    Channel {
        job: "rendezvous|job".into(),
        attempt: 0,
    }
}

/// What several nodes were told.
type Notices = Arc<Mutex<Vec<Notice>>>;

/// Keeps what a node is told.
fn keep_notices(settings: &mut Settings, notices: &Notices) {
    let notices = Arc::clone(notices);
    settings.on_notice = Arc::new(move |notice| notices.lock().unwrap().push(notice));
}

fn rendezvous(settings: Settings) -> Rendezvous {
    Rendezvous::new(settings).unwrap()
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let in_time = timeout(SOON, future).await;
    in_time.unwrap_or_else(|_| panic!("{what} takes longer than {SOON:?}"))
}

async fn both(
    first: &mut Rendezvous,
    second: &mut Rendezvous,
    restarts: (u32, u32),
) -> (Joined, Joined) {
    let joins = async { tokio::join!(first.join(restarts.0), second.join(restarts.1)) };
    let (first, second) = soon("joining", joins).await;
    (first.unwrap(), second.unwrap())
}

/// Who serves the endpoint and the other one, which have met.
async fn host_and_other(endpoint: &Endpoint) -> (Rendezvous, Rendezvous) {
    let mut host = rendezvous(of_two(endpoint, true));
    let mut other = rendezvous(of_two(endpoint, false));
    both(&mut host, &mut other, (0, 0)).await;
    (host, other)
}

async fn leave_together(first: &mut Rendezvous, second: &mut Rendezvous) {
    let finished = async { tokio::join!(first.finish(), second.finish()) };
    let ends = soon("finishing", finished).await;
    assert_eq!(ends, (Finish::Together, Finish::Together));
}

/// What a world says of this node: its rank, nodes, first rank, all ranks.
fn place(joined: &Joined) -> (u32, u32, u32, u32) {
    let world = &joined.world;
    (
        world.node_rank,
        world.nodes,
        world.first_rank,
        world.world_size,
    )
}

#[tokio::test]
async fn row_46_two_standalone_nodes_at_once_have_ports_of_their_own() {
    let mut first = rendezvous(Settings::new(2));
    let mut second = rendezvous(Settings::new(3));
    let (one, two) = (first.join(0).await.unwrap(), second.join(0).await.unwrap());
    assert_eq!(place(&one), (0, 1, 0, 2));
    assert_eq!(place(&two), (0, 1, 0, 3));
    assert_ne!(one.world.master_port, two.world.master_port);
    let listener = one.master.unwrap().listen().unwrap();
    assert_eq!(listener.local_addr().unwrap().port(), one.world.master_port);
    assert!(listener.local_addr().unwrap().ip().is_loopback());
    let again = second.join(1).await.unwrap();
    assert_eq!(again.restarts, 1);
    assert!(again.master.is_some(), "without a store a new port");
    assert_eq!(first.finish().await, Finish::Together);
}

#[tokio::test]
async fn a_store_of_one_node_stays_at_its_port_over_restarts() {
    let mut settings = Settings::new(1);
    settings.has_store = true;
    let mut node = rendezvous(settings);
    let first = node.join(0).await.unwrap();
    assert!(first.master.is_some());
    let second = node.join(1).await.unwrap();
    assert_eq!(second.world, first.world);
    assert!(second.master.is_none());
}

#[tokio::test]
async fn row_47_two_nodes_meet_by_c10d_and_leave_together() {
    let endpoint = endpoint();
    let settings = || node(Backend::C10d, &endpoint, (2, 2));
    let (mut first, mut second) = (rendezvous(settings()), rendezvous(settings()));
    let (one, two) = both(&mut first, &mut second, (0, 0)).await;
    let mut places = [place(&one), place(&two)];
    places.sort_unstable();
    assert_eq!(places, [(0, 2, 0, 4), (1, 2, 2, 4)]);
    assert_eq!(one.world.master_addr, endpoint.host);
    assert_eq!(one.world.master_port, two.world.master_port);
    assert!(one.world.has_store);
    let zero = if one.world.node_rank == 0 { one } else { two };
    assert_eq!(zero.peers.len(), 2);
    let store = zero.master.unwrap().listen().unwrap();
    TcpStream::connect((zero.world.master_addr.as_str(), zero.world.master_port)).unwrap();
    drop(store);
    leave_together(&mut first, &mut second).await;
}

#[tokio::test]
async fn row_47_two_nodes_meet_at_the_master_port_which_then_is_the_store_s() {
    let endpoint = endpoint();
    let settings = |rank, workers| {
        let mut settings = node(Backend::Static, &endpoint, (2, 2));
        settings.node_rank = rank;
        settings.local_size = workers;
        settings
    };
    let (mut zero, mut one) = (rendezvous(settings(0, 1)), rendezvous(settings(1, 3)));
    let (at_zero, at_one) = both(&mut zero, &mut one, (0, 0)).await;
    assert_eq!(place(&at_zero), (0, 2, 0, 4));
    assert_eq!(place(&at_one), (1, 2, 1, 4), "sizes may differ");
    assert_eq!(Some(at_one.world.master_port), endpoint.port);
    assert_eq!(at_one.world.master_addr, endpoint.host);
    let store = at_zero.master.unwrap().listen().unwrap();
    assert_eq!(store.local_addr().unwrap().port(), at_one.world.master_port);

    // A restart needs neither the port nor another connection.
    zero.restart("rank 0 ended with 1");
    let change = soon("a change", one.changed()).await;
    assert!(matches!(change, Change::PeerRestarts { ref node, .. } if node.contains("node 0")));
    let (again, _) = both(&mut zero, &mut one, (1, 0)).await;
    assert_eq!(again.world, at_zero.world);
    assert_eq!(again.restarts, 1);
    assert!(again.master.is_none());
    leave_together(&mut zero, &mut one).await;
}

#[tokio::test]
async fn without_a_store_the_master_port_is_free_for_rank_0() {
    let endpoint = endpoint();
    let settings = |rank| {
        let mut settings = node(Backend::Static, &endpoint, (2, 2));
        (settings.node_rank, settings.has_store) = (rank, rank == 1);
        settings
    };
    let (mut zero, mut one) = (rendezvous(settings(0)), rendezvous(settings(1)));
    let (at_zero, at_one) = both(&mut zero, &mut one, (0, 0)).await;
    assert!(!at_zero.world.has_store && !at_one.world.has_store);
    assert!(at_zero.master.is_none());
    let address = (endpoint.host.as_str(), endpoint.port.unwrap());
    TcpStream::connect(address).unwrap_err();
    let _opened_by_rank_0 = std::net::TcpListener::bind(address).unwrap();
}

/// The name is known to the kernel alone, or to this machine as another address than to others.
#[tokio::test]
async fn row_47_two_nodes_meet_at_this_machine_s_own_name() {
    let system = rustix::system::uname();
    let port = 31_000 + u16::try_from(std::process::id() % 1500).unwrap();
    let endpoint = Endpoint {
        host: system.nodename().to_str().unwrap().to_owned(),
        port: Some(port),
    };
    let settings = || node(Backend::C10d, &endpoint, (2, 2));
    let (mut first, mut second) = (rendezvous(settings()), rendezvous(settings()));
    let (one, two) = both(&mut first, &mut second, (0, 0)).await;
    assert_eq!(one.world.world_size, 4);
    assert_eq!(one.world.master_addr, two.world.master_addr);
    leave_together(&mut first, &mut second).await;
}

#[tokio::test]
async fn row_48_one_node_starts_alone_and_a_late_one_makes_it_begin_again() {
    let endpoint = endpoint();
    let settings = || node(Backend::C10d, &endpoint, (1, 2));
    let mut first = rendezvous(settings());
    let alone = soon("the last call", first.join(0)).await.unwrap();
    assert_eq!(place(&alone), (0, 1, 0, 2));
    let mut second = rendezvous(settings());
    let late = async {
        let begun_again = async {
            let change = first.changed().await;
            assert_eq!(change, Change::NodesWaiting { nodes: 1 });
            first.join(0).await
        };
        tokio::join!(begun_again, second.join(0))
    };
    let (one, two) = soon("a late node", late).await;
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!((one.world.nodes, two.world.world_size), (2, 4));
    assert_eq!((one.restarts, two.restarts), (0, 0), "not counted");
    first.leave().await;
    let change = soon("a change", second.changed()).await;
    assert!(matches!(change, Change::PeerGone { .. }), "{change:?}");
}

#[tokio::test]
async fn a_node_that_dies_is_missed_at_once_and_the_rest_begins_again() {
    let endpoint = endpoint();
    let settings = || node(Backend::C10d, &endpoint, (1, 2));
    let (mut first, mut second) = (rendezvous(settings()), rendezvous(settings()));
    // The first serves the endpoint.
    let alone = async {
        let mut join = std::pin::pin!(first.join(0));
        let started = timeout(Duration::from_millis(100), &mut join).await;
        assert!(started.is_err(), "the last call is not over");
    };
    alone.await;
    both(&mut first, &mut second, (0, 0)).await;
    drop(second);
    let change = soon("a change", first.changed()).await;
    assert!(
        matches!(&change, Change::PeerGone { reason, .. } if reason.contains("broke")),
        "{change:?}"
    );
    let alone = soon("joining again", first.join(1)).await.unwrap();
    assert_eq!(place(&alone), (0, 1, 0, 2));
    assert_eq!(soon("finishing", first.finish()).await, Finish::Together);
}

#[tokio::test]
async fn a_silent_node_is_gone_and_a_node_without_its_host_is_told() {
    let endpoint = endpoint();
    let mut host = rendezvous(node(Backend::C10d, &endpoint, (2, 2)));
    let address = format!("{endpoint}").parse().unwrap();
    let silent = async {
        let deadline = Instant::now() + SOON;
        let (mut sender, receiver) = loop {
            match herd_link::connect(address, &key(), &channel(), SOON).await {
                Ok(link) => break link,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            tokio::task::yield_now().await;
        };
        let hello = serde_json::json!({
            "type": "hello", "version": 1, "name": "h9", "pid": 9, "address": "127.0.0.9",
            "addresses": [], "local_size": 1, "role": "default", "min_nodes": 2, "max_nodes": 2,
            "node_rank": null, "from_a_later_release": true,
        });
        let join = serde_json::json!({
            "type": "join", "round": 0, "restarts": 0, "port": 1, "has_store": true,
        });
        for message in [hello, serde_json::json!({"type": "news"}), join] {
            sender.send_json(&message).await.unwrap();
        }
        sender.flush().await.unwrap();
        (sender, receiver)
    };
    let (joined, _open) = soon("joining", async { tokio::join!(host.join(0), silent) }).await;
    assert_eq!(joined.unwrap().world.world_size, 3);
    let change = soon("silence", host.changed()).await;
    assert!(
        matches!(&change, Change::PeerGone { node, reason }
            if node.contains("h9") && reason.contains("silent for 4 s")),
        "{change:?}"
    );
}

#[tokio::test]
async fn with_the_host_the_rendezvous_is_lost() {
    let endpoint = endpoint();
    let (host, mut other) = host_and_other(&endpoint).await;
    drop(host);
    let change = soon("a change", other.changed()).await;
    assert!(matches!(change, Change::HostLost { .. }), "{change:?}");
    let error = soon("joining", other.join(0)).await.unwrap_err();
    assert!(matches!(error, RendezvousError::HostLost { .. }), "{error}");
}

/// What a launcher that is stopped in the middle (acceptance row 28) leaves to the others.
#[tokio::test]
async fn a_host_that_is_stopped_says_so_to_who_runs_and_to_who_waits() {
    let endpoint = endpoint();
    let (mut host, mut other) = host_and_other(&endpoint).await;
    let mut spare = rendezvous(of_two(&endpoint, false));
    let stopped = async {
        let joining = timeout(Duration::from_millis(500), spare.join(0)).await;
        assert!(joining.is_err(), "it stands by");
        tokio::join!(host.leave(), other.changed(), spare.join(0))
    };
    let ((), change, waited) = soon("a stop", stopped).await;
    assert!(
        matches!(&change, Change::PeerGone { reason, .. } if reason == "it was stopped"),
        "{change:?}"
    );
    for error in [waited.unwrap_err(), other.join(0).await.unwrap_err()] {
        let text = error.to_string();
        assert!(matches!(error, RendezvousError::Closed { .. }), "{text}");
        assert!(
            text.contains("the launcher that served it has ended"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_host_that_says_nothing_is_lost() {
    let endpoint = endpoint();
    let mut settings = of_two(&endpoint, false);
    settings.timeouts.lost = Duration::from_secs(1);
    let address = format!("{endpoint}").parse().unwrap();
    let mut silent = Listener::bind(address, &key(), &channel()).await.unwrap();
    let mut node = rendezvous(settings);
    let both = async { tokio::join!(silent.accept(), node.join(0)) };
    let (_open, joined) = soon("silence", both).await;
    let error = joined.unwrap_err();
    assert!(
        matches!(&error, RendezvousError::HostLost { reason, .. } if reason.contains("silent")),
        "{error}"
    );
}

#[tokio::test]
async fn a_failure_for_good_reaches_the_other_node_with_its_reason_and_closes_the_rendezvous() {
    let endpoint = endpoint();
    for host_fails in [true, false] {
        let (mut host, mut other) = host_and_other(&endpoint).await;
        let (failing, told) = if host_fails {
            (&mut host, &mut other)
        } else {
            (&mut other, &mut host)
        };
        let failed = async { tokio::join!(failing.fail("rank 3 ended with 7"), told.changed()) };
        let ((), change) = soon("a failure", failed).await;
        assert!(
            matches!(&change, Change::PeerFailed { reason, .. } if reason == "rank 3 ended with 7"),
            "{change:?}"
        );
        let error = soon("joining", told.join(0)).await.unwrap_err();
        assert!(matches!(error, RendezvousError::Closed { .. }), "{error}");
        if !host_fails {
            let mut late = rendezvous(of_two(&endpoint, false));
            let error = soon("joining late", late.join(0))
                .await
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("closed") && error.contains("rank 3 ended with 7"),
                "{error}"
            );
        }
    }
}

#[tokio::test]
async fn the_exit_barrier_is_bounded_and_the_others_go_on() {
    let endpoint = endpoint();
    let settings = |host| {
        let mut settings = of_two(&endpoint, host);
        settings.timeouts.exit_barrier = Duration::from_millis(200);
        settings
    };
    let (mut host, mut other) = (rendezvous(settings(true)), rendezvous(settings(false)));
    both(&mut host, &mut other, (0, 0)).await;
    let finish = soon("the barrier", host.finish()).await;
    assert!(matches!(finish, Finish::TimedOut { .. }), "{finish:?}");
    let change = timeout(Duration::from_millis(100), other.changed()).await;
    assert!(change.is_err(), "nothing to act on: {change:?}");
    assert_eq!(soon("finishing", other.finish()).await, Finish::Together);
}

#[tokio::test]
async fn another_key_or_id_and_garbage_keep_nobody_from_meeting() {
    let endpoint = endpoint();
    let settings = || node(Backend::C10d, &endpoint, (2, 2));
    let mut strangers = [settings(), settings()];
    strangers[0].id = "another".into();
    strangers[1].key = Some(Key::generate().unwrap());
    let notices = Notices::default();
    for stranger in &mut strangers {
        stranger.is_host = Some(false);
        stranger.timeouts.join = Duration::from_secs(2);
        stranger.timeouts.notice = Duration::from_millis(500);
        keep_notices(stranger, &notices);
    }
    let mut host = rendezvous(settings());
    let [mut by_id, mut by_key] = strangers.map(rendezvous);
    {
        let turned_away = async {
            let errors = tokio::join!(by_id.join(0), by_key.join(0));
            [errors.0.unwrap_err(), errors.1.unwrap_err()]
        };
        let errors = soon("strangers", async {
            tokio::select! {
                _joined = host.join(0) => panic!("nobody else is there"),
                errors = turned_away => errors,
            }
        })
        .await;
        for error in errors {
            let text = error.to_string();
            assert!(matches!(error, RendezvousError::TimedOut { .. }), "{text}");
            assert!(
                text.contains("HERD_RDZV_KEY") && text.contains("--rdzv-id"),
                "{text}"
            );
        }
    }
    for notice in notices.lock().unwrap().iter().map(Notice::to_string) {
        assert!(notice.contains("does not accept this node"), "{notice}");
    }
    assert!(notices.lock().unwrap().len() >= 2);
    let address = (endpoint.host.as_str(), endpoint.port.unwrap());
    let mut garbage: Vec<TcpStream> = (0..100)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    for stream in garbage.iter_mut().step_by(2) {
        stream.write_all(&[b'x'; 100]).unwrap();
    }
    let mut second = rendezvous(settings());
    let (one, _) = both(&mut host, &mut second, (0, 0)).await;
    assert_eq!(one.world.world_size, 4);
}

#[tokio::test]
async fn who_is_missing_is_named_and_the_wait_ends() {
    let endpoint = endpoint();
    let notices = Notices::default();
    let settings = |rank| {
        let mut settings = node(Backend::Static, &endpoint, (3, 3));
        settings.node_rank = rank;
        settings.timeouts.join = Duration::from_secs(4);
        settings.timeouts.notice = Duration::from_millis(1500);
        keep_notices(&mut settings, &notices);
        settings
    };
    let mut one = rendezvous(settings(1));
    let error = soon("no host", one.join(0)).await.unwrap_err().to_string();
    assert!(error.contains(&endpoint.to_string()), "{error}");
    assert!(
        error.contains("connecting to") && error.contains("hint:"),
        "{error}"
    );
    let heard = std::mem::take(&mut *notices.lock().unwrap());
    assert!(heard[0].to_string().contains("refused"), "{heard:?}");
    let (mut zero, mut one) = (rendezvous(settings(0)), rendezvous(settings(1)));
    let joins = async { tokio::join!(zero.join(0), one.join(0)) };
    let (at_zero, _) = soon("a missing node", joins).await;
    let error = at_zero.unwrap_err().to_string();
    assert!(error.contains("2 of 3 nodes"), "{error}");
    assert!(error.contains("missing: node rank 2"), "{error}");
    let heard = notices.lock().unwrap();
    assert!(heard[0].to_string().contains("node rank 2"), "{heard:?}");
}

#[tokio::test]
async fn a_rendezvous_without_a_key_is_said_to_be_open_unless_on_loopback() {
    let warned = |host: &'static str| async move {
        let heard = Notices::default();
        let mut settings = Settings::new(1);
        settings.backend = Backend::C10d;
        settings.endpoint = Endpoint {
            host: host.to_owned(),
            port: Some(0),
        };
        settings.max_nodes = 2;
        settings.is_host = Some(true);
        settings.timeouts.last_call = Duration::from_millis(1);
        keep_notices(&mut settings, &heard);
        let mut node = rendezvous(settings);
        soon("joining", node.join(0)).await.unwrap();
        let heard = heard.lock().unwrap();
        heard.iter().filter(|notice| notice.is_warning()).count()
    };
    assert_eq!(warned("127.0.0.1").await, 0);
    assert_eq!(warned("localhost").await, 0);
    assert_eq!(warned("0.0.0.0").await, 1);
}

#[tokio::test]
async fn a_join_that_was_given_up_can_be_taken_up_again() {
    let endpoint = endpoint();
    let settings = || node(Backend::C10d, &endpoint, (2, 2));
    let (mut first, mut second) = (rendezvous(settings()), rendezvous(settings()));
    for _ in 0..20 {
        let given_up = timeout(Duration::from_millis(3), first.join(0)).await;
        assert!(given_up.is_err());
    }
    let (one, _) = both(&mut first, &mut second, (0, 0)).await;
    assert_eq!(one.world.nodes, 2);
}

#[tokio::test]
async fn many_nodes_meet() {
    let endpoint = endpoint();
    let mut nodes = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let mut node = rendezvous(node(Backend::C10d, &endpoint, (64, 64)));
        nodes.spawn(async move {
            let joined = node.join(0).await.unwrap();
            assert_eq!(node.finish().await, Finish::Together);
            (joined.world.node_rank, joined.world.first_rank)
        });
    }
    let mut places = soon("64 nodes", nodes.join_all()).await;
    places.sort_unstable();
    let expected: Vec<_> = (0..64).map(|rank| (rank, 2 * rank)).collect();
    assert_eq!(places, expected);
}
