//! The store under clients of every kind, looked at from outside: issue B, point 4. torch's own clients
//! are in `store_torch.rs`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod serving;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream};
use std::process::Command;
use std::time::Duration;

use herd_launch::store::{BindError, Limits, Notice, Options, ProtocolError, Refusal, Server};
use herd_testing::eventually;
use serving::{Raw, Serving, string};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const MIB: usize = 1024 * 1024;

fn options() -> Options {
    Options::default()
}

/// A few honest requests and their answers.
fn assert_serves(store: &Serving) {
    let mut client = Raw::connect(store.port);
    client.send(&[&[13], &7_u32.to_le_bytes()]);
    client.expect(&7_u32.to_le_bytes());
    client.send(&[&[1], &string(b"k"), &string(b"v")]);
    client.send(&[
        &[6],
        &1_u64.to_le_bytes(),
        &string(b"k"),
        &[3],
        &string(b"k"),
    ]);
    client.expect(&[0]);
    client.expect(&string(b"v"));
}

#[test]
fn requests_may_come_in_pieces_and_together() {
    let store = Serving::start(options());
    let mut client = Raw::connect(store.port);
    let request = [
        [1].as_slice(),
        &string(b"k"),
        &string(b"v"),
        &[3],
        &string(b"k"),
    ]
    .concat();
    for byte in &request {
        client.send(&[&[*byte]]);
    }
    client.expect(&string(b"v"));
    // A hundred requests in one write have a hundred answers, in order.
    let pings: Vec<u8> = (0..100_u32)
        .flat_map(|nonce| [[13].as_slice(), &nonce.to_le_bytes()].concat())
        .collect();
    client.send(&[&pings]);
    for nonce in 0..100_u32 {
        client.expect(&nonce.to_le_bytes());
    }
    // More than is handled in one turn.
    let many: Vec<u8> = (0..5000_u32)
        .flat_map(|nonce| [[13].as_slice(), &nonce.to_le_bytes()].concat())
        .collect();
    client.send(&[&many]);
    for nonce in 0..5000_u32 {
        client.expect(&nonce.to_le_bytes());
    }
}

#[test]
fn a_wait_is_answered_when_another_client_sets_its_key() {
    let store = Serving::start(options());
    let (mut waits, mut sets) = (Raw::connect(store.port), Raw::connect(store.port));
    waits.send(&[&[6], &1_u64.to_le_bytes(), &string(b"k")]);
    waits.send(&[&[13], &1_u32.to_le_bytes()]);
    waits.expect(&1_u32.to_le_bytes());
    sets.send(&[&[1], &string(b"k"), &string(b"v")]);
    waits.expect(&[0]);
    // The cancellation that crossed it has its answer too.
    waits.send(&[&[12]]);
    waits.expect(&[1]);
    // And a client wakes itself.
    waits.send(&[&[6], &1_u64.to_le_bytes(), &string(b"own")]);
    waits.send(&[&[1], &string(b"own"), &string(b"v"), &[7]]);
    waits.expect(&[0]);
    waits.expect(&2_i64.to_le_bytes());
}

#[test]
fn garbage_ends_only_who_sent_it() {
    let store = Serving::start(options());
    let mut waits = Raw::connect(store.port);
    waits.send(&[&[6], &1_u64.to_le_bytes(), &string(b"late")]);
    // Always the same numbers, from a simple generator.
    let mut seed = 1_u32;
    let mut random = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        seed.to_be_bytes()[0]
    };
    for round in 0..100 {
        let bytes: Vec<u8> = (0..512).map(|_| random()).collect();
        if round % 2 == 0 {
            let mut stream = TcpStream::connect((LOOPBACK, store.port)).unwrap();
            // It may be closed before all is written.
            stream.write_all(&bytes).ok();
        } else {
            Raw::connect(store.port).send_some(&bytes);
        }
    }
    let claims = [
        [[3].as_slice(), &[0xff; 8]].concat(),
        [[1].as_slice(), &string(b"k"), &[0xff; 8]].concat(),
        [[6].as_slice(), &[0xff; 8]].concat(),
        [[11].as_slice(), &[0xff; 8]].concat(),
    ];
    for claim in claims {
        let mut client = Raw::connect(store.port);
        client.send(&[&claim]);
        client.expect_closed();
    }
    assert_serves(&store);
    waits.send(&[&[1], &string(b"late"), &string(b"")]);
    waits.expect(&[0]);
}

#[test]
fn unknown_operations_are_told_once_with_their_number() {
    let store = Serving::start(options());
    for _ in 0..3 {
        let mut client = Raw::connect(store.port);
        client.send(&[&[77]]);
        client.expect_closed();
    }
    let is_it = |notice: &Notice| {
        matches!(
            notice,
            Notice::Protocol {
                reason: ProtocolError::UnknownOperation(77),
                ..
            }
        )
    };
    eventually("the operation is told", || {
        store.notices().iter().any(is_it)
    });
    assert_serves(&store);
    assert_eq!(store.notices().len(), 1, "{:?}", store.notices());
    assert!(store.notices()[0].to_string().contains("operation 77"));
}

#[test]
fn a_silent_connection_is_closed_and_a_client_that_waits_is_not() {
    let validate_within = Duration::from_millis(300);
    let store = Serving::start(Options {
        validate_within,
        ..options()
    });
    assert_eq!(options().validate_within, Duration::from_secs(5));
    let mut waits = Raw::connect(store.port);
    waits.send(&[&[6], &1_u64.to_le_bytes(), &string(b"k")]);
    let mut silent = TcpStream::connect((LOOPBACK, store.port)).unwrap();
    let mut half = TcpStream::connect((LOOPBACK, store.port)).unwrap();
    half.write_all(b"\x00\xce").unwrap();
    assert_eq!(silent.read(&mut [0]).unwrap_or(0), 0);
    assert_eq!(half.read(&mut [0]).unwrap_or(0), 0);
    let is_it = |notice: &Notice| {
        matches!(
            notice,
            Notice::Protocol {
                reason: ProtocolError::Silent(_),
                ..
            }
        )
    };
    eventually("the silence is told", || store.notices().iter().any(is_it));
    waits.send(&[&[1], &string(b"k"), &string(b"")]);
    waits.expect(&[0]);
}

#[test]
fn a_client_that_does_not_read_is_cut_and_costs_one_answer() {
    let read_within = Duration::from_millis(500);
    let store = Serving::start(Options {
        read_within,
        ..options()
    });
    let mut client = Raw::connect(store.port);
    let value = vec![7; 8 * MIB];
    client.send(&[&[1], &string(b"big"), &string(&value)]);
    // More than any socket buffer: 4 GiB of answers, of which one at a time is made.
    let gets: Vec<u8> = [[3].as_slice(), &string(b"big")].concat().repeat(512);
    client.send_some(&gets);
    assert_serves(&store);
    let is_it = |notice: &Notice| {
        matches!(
            notice,
            Notice::Refused {
                reason: Refusal::NotReading(_),
                ..
            }
        )
    };
    eventually("it is cut", || store.notices().iter().any(is_it));
    eventually("nothing of it is left", || store.connections() == 0);
    assert_serves(&store);
    // Of all tests in this process together; the answers would be 4 GiB.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak: usize = peak
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    assert!(peak < 1024 * 1024, "{peak} KiB");
}

#[test]
fn those_who_hold_most_are_cut_when_it_is_too_much() {
    let limits = Limits {
        under_way_bytes: 4 * MIB,
        ..Limits::default()
    };
    let store = Serving::start(Options {
        limits,
        ..options()
    });
    let mut small = Raw::connect(store.port);
    small.send(&[&[1], &string(b"half"), &[4, 0, 0, 0, 0, 0, 0, 0, 1]]);
    let half = vec![1; 3 * MIB];
    let begin = || {
        let mut client = Raw::connect(store.port);
        client.send_some(
            &[
                [1].as_slice(),
                &string(b"k"),
                &(8 * MIB as u64).to_le_bytes(),
            ]
            .concat(),
        );
        client.send_some(&half);
        client
    };
    let _clients = [begin(), begin(), begin()];
    let is_it = |notice: &Notice| {
        matches!(
            notice,
            Notice::Refused {
                reason: Refusal::Crowded(4),
                ..
            }
        )
    };
    eventually("it is told", || store.notices().iter().any(is_it));
    assert_serves(&store);
    small.send(&[&[2, 3, 4], &[3], &string(b"half")]);
    small.expect(&string(&[1, 2, 3, 4]));
}

#[test]
fn a_full_store_refuses_and_goes_on() {
    let limits = Limits {
        stored_bytes: MIB,
        connections: 3,
        ..Limits::default()
    };
    let store = Serving::start(Options {
        limits,
        ..options()
    });
    let mut client = Raw::connect(store.port);
    client.send(&[&[1], &string(b"k"), &string(&vec![0; 2 * MIB])]);
    client.expect_closed();
    assert_serves(&store);
    eventually("those are gone", || store.connections() == 0);
    let mut clients: Vec<_> = (0..3).map(|_| Raw::connect(store.port)).collect();
    for client in &mut clients {
        client.send(&[&[7]]);
        client.expect(&1_i64.to_le_bytes());
    }
    Raw::connect(store.port).expect_closed();
    let is_it = |notice: &Notice| matches!(notice, Notice::TooManyConnections { limit: 3, .. });
    eventually("it is told", || store.notices().iter().any(is_it));
}

#[test]
fn silent_connections_make_room_for_those_that_speak() {
    // More than may be silent at the same time; they stay open.
    const SILENT: u16 = 1100;
    // Both ends are here, and those of other tests.
    herd_testing::process::allow_open_files(3 * u64::from(SILENT));
    let store = Serving::start(options());
    let silent: Vec<_> = (0..SILENT)
        .map(|_| TcpStream::connect((LOOPBACK, store.port)).unwrap())
        .collect();
    assert_serves(&store);
    drop(silent);
    eventually("they are gone", || store.connections() == 0);
}

#[test]
fn a_client_that_goes_away_while_it_waits_leaves_nothing() {
    let store = Serving::start(options());
    for _ in 0..50 {
        let mut client = Raw::connect(store.port);
        client.send(&[&[6], &1_u64.to_le_bytes(), &string(b"never")]);
    }
    eventually("all are gone", || store.connections() == 0);
    assert_serves(&store);
}

#[test]
fn a_reset_ends_all_clients_and_keeps_the_port() {
    let store = Serving::start(options());
    let mut client = Raw::connect(store.port);
    client.send(&[&[1], &string(b"k"), &string(b"v"), &[7]]);
    client.expect(&1_i64.to_le_bytes());
    store.reset();
    client.expect_closed();
    let mut client = Raw::connect(store.port);
    client.send(&[&[7]]);
    client.expect(&0_i64.to_le_bytes());
}

#[test]
fn dropping_the_server_ends_everything() {
    let store = Serving::start(options());
    let port = store.port;
    let mut client = Raw::connect(port);
    client.send(&[&[7]]);
    client.expect(&0_i64.to_le_bytes());
    store.stop();
    client.expect_closed();
    assert!(TcpStream::connect((LOOPBACK, port)).is_err());
}

#[test]
fn one_port_on_several_addresses() {
    let second = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    let store = Serving::start_on(&[LOOPBACK, second], 0, options()).unwrap();
    for address in [LOOPBACK, second] {
        TcpStream::connect((address, store.port)).unwrap();
    }
    let third = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
    assert!(
        TcpStream::connect((third, store.port)).is_err(),
        "not asked for"
    );
}

#[test]
fn everywhere_is_both_families_where_it_is_asked_for() {
    let everywhere = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let store = Serving::start_on(&[everywhere], 0, options()).unwrap();
    TcpStream::connect((LOOPBACK, store.port)).unwrap();
    if TcpStream::connect((IpAddr::V6(Ipv6Addr::LOCALHOST), store.port)).is_err() {
        let system = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
        assert!(
            !system.contains(" lo\n"),
            "there is IPv6, and nothing listens on it"
        );
    }
    assert_serves(&store);
}

#[test]
fn a_port_that_is_taken_is_an_error_with_a_hint() {
    let store = Serving::start(options());
    let error = Serving::start_on(&[LOOPBACK], store.port, options()).unwrap_err();
    assert!(matches!(&error, BindError::Listen { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains(&format!("127.0.0.1:{}", store.port)) && text.contains("hint:"),
        "{text}"
    );
    let none = Serving::start_on(&[], 0, options()).unwrap_err();
    assert!(matches!(none, BindError::NoAddress));
}

/// Set where this program runs again in a network namespace of its own.
const IN_NAMESPACE: &str = "HERD_TEST_IN_NAMESPACE";

/// In a network namespace of its own, where addresses can be had that are neither loopback nor those at
/// which the store listens.
#[test]
fn strangers_are_refused_until_they_are_allowed() {
    if std::env::var_os(IN_NAMESPACE).is_some() {
        strangers();
        return;
    }
    let netns = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/netns");
    let output = Command::new(netns)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "strangers_are_refused_until_they_are_allowed"])
        .env(IN_NAMESPACE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{errors}"
    );
}

fn strangers() {
    let [store_at, peer_at]: [IpAddr; 2] =
        ["10.98.0.1", "10.98.0.2"].map(|text| text.parse().unwrap());
    let store = Serving::start_on(&[store_at], 0, options()).unwrap();
    let mut own = Raw::connect_between(store_at, (store_at, store.port));
    own.send(&[&[7]]);
    own.expect(&0_i64.to_le_bytes());
    Raw::connect_between(peer_at, (store_at, store.port)).expect_closed();
    let is_it =
        |notice: &Notice| matches!(notice, Notice::NotAllowed(address) if *address == peer_at);
    eventually("the stranger is told", || store.notices().iter().any(is_it));
    store.allow("10.98.0.2".parse().unwrap());
    let mut peer = Raw::connect_between(peer_at, (store_at, store.port));
    peer.send(&[&[7]]);
    peer.expect(&0_i64.to_le_bytes());
}

/// The server is made in any runtime and moves between threads with it.
#[test]
fn server_may_be_sent() {
    fn assert_send<T: Send>() {}
    assert_send::<Server>();
}
