//! Nodes meet, and each worker knows where it stands.

use std::fs;

use crate::nodes::{Namespace, Nodes, printed};
use crate::{FOUR, KEY, PLACE, all_end};

#[test]
fn row_47_two_numbered_nodes_have_ranks_0_to_3() {
    let test = Nodes::new(&format!("{PLACE}; echo $MASTER_ADDR:$MASTER_PORT >> place"));
    let mut both = test.two(|rank| test.fixed(rank), &[]);
    all_end(&mut both, 0);
    assert_eq!(printed(&both), FOUR);
    assert!(both[1].out().contains("2/4") && both[1].out().contains("3/4"));
    let place = format!("{}:{}", test.host, test.port);
    assert_eq!(test.lines("place"), [place.as_str(); 4]);
}

#[test]
fn row_47_two_nodes_that_come_as_they_like_have_ranks_0_to_3() {
    let test = Nodes::new(&format!("{PLACE}; echo $MASTER_ADDR:$MASTER_PORT >> place"));
    let mut both = test.two(|_| test.c10d("2"), &[]);
    all_end(&mut both, 0);
    assert_eq!(printed(&both), FOUR);
    let places = test.lines("place");
    assert!(
        places[0].starts_with(&format!("{}:", test.host)),
        "{places:?}"
    );
    assert!(places.iter().all(|place| *place == places[0]), "{places:?}");
}

#[test]
fn row_47_two_nodes_with_networks_of_their_own_meet() {
    let networks = Namespace::pair();
    let test = Nodes::new(&format!("{PLACE}; echo $MASTER_ADDR >> place"));
    let fixed = |rank: usize| {
        let flags = ["--nnodes=2", "--master-addr=10.77.0.1"].map(str::to_owned);
        [&flags[..], &[format!("--node-rank={rank}")]].concat()
    };
    let c10d = |_: usize| {
        [
            "--nnodes=2",
            "--rdzv-backend=c10d",
            "--rdzv-endpoint=10.77.0.2",
        ]
        .map(str::to_owned)
        .to_vec()
    };
    for flags in [&fixed as &dyn Fn(usize) -> Vec<String>, &c10d] {
        let mut both = [0, 1].map(|rank| {
            let network = networks.get(rank);
            let mut command = test.command_in(network, &flags(rank), &["--nproc-per-node=2"]);
            command.env("HERD_RDZV_KEY", KEY);
            test.start(&format!("node{rank}"), &mut command)
        });
        all_end(&mut both, 0);
        assert_eq!(printed(&both), FOUR);
        assert!(!both[0].err().contains("no key"), "{}", both[0].err());
        // Ranks go by address, so node 0 is the first, whoever serves the endpoint.
        assert_eq!(test.lines("place"), ["10.77.0.1"; 4]);
        fs::remove_file(test.path("place")).unwrap();
    }
}

#[test]
fn an_address_of_its_own_is_what_a_node_is_reached_by() {
    let test = Nodes::new("echo $RANK $MASTER_ADDR");
    let mut both = test.two(
        |rank| {
            let mut flags = test.c10d("2");
            flags.push(format!("--local-addr=127.9.9.{}", rank + 1));
            flags
        },
        &[],
    );
    all_end(&mut both, 0);
    let expected = [0, 1, 2, 3].map(|rank| format!("{rank} 127.9.9.1"));
    assert_eq!(printed(&both), expected);
}

#[test]
fn etcd_and_plug_ins_are_refused_with_what_to_use_instead() {
    let test = Nodes::new("touch started");
    for backend in ["etcd", "etcd-v2", "my-plug-in"] {
        let flags = [format!("--rdzv-backend={backend}"), "--nnodes=2".to_owned()];
        let mut node = test.start("refused", &mut test.command(&flags, &[]));
        node.ends(2);
        let text = node.err();
        assert!(text.contains(backend), "{text}");
        assert!(
            text.contains("--rdzv-backend=c10d --rdzv-endpoint="),
            "{text}"
        );
    }
    for conf in ["join_timeout=soon", "is_host=perhaps", "key_file=none"] {
        let conf = format!("--rdzv-conf={conf}");
        let mut node = test.start("refused", &mut test.command(&test.c10d("2"), &[&conf]));
        node.ends(2);
    }
    assert!(!test.path("started").exists());
}

#[test]
fn a_port_that_somebody_has_is_named() {
    let test = Nodes::new("touch started");
    let _somebody = std::net::TcpListener::bind((test.host.as_str(), test.port)).unwrap();
    let mut several = test.start("several", &mut test.command(&test.fixed(0), &[]));
    let alone = [
        format!("--master-addr={}", test.host),
        format!("--master-port={}", test.port),
    ];
    let mut alone = test.start("alone", &mut test.command(&alone, &[]));
    for node in [&mut several, &mut alone] {
        node.ends(1);
        node.says(&test.port.to_string());
        node.says("in use");
    }
}
