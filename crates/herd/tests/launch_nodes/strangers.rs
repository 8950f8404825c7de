//! Who is no node of the job: those without its key, and those that talk nonsense or nothing.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;

use herd_testing::within;

use crate::nodes::{DEADLINE, Nodes, printed};
use crate::{FOUR, KEY, PLACE, all_end, is_served};

#[test]
fn i12_only_nodes_with_the_key_meet_and_nobody_else_sees_it() {
    let test = Nodes::new(&format!(
        "{PLACE}; env >> env.all; echo $$ >> pids; until [ -e go ]; do sleep 0.05; done"
    ));
    let more = ["--nproc-per-node=2", "--rdzv-conf=join_timeout=600"];
    let start = |name: &str, key: &str| {
        let mut command = test.command(&test.c10d("2"), &more);
        test.start(name, command.env("HERD_RDZV_KEY", key))
    };
    let first = start("first", KEY);
    is_served(&test);
    let stranger = start("stranger", &"11".repeat(32));
    stranger.says("does not accept this node (another HERD_RDZV_KEY or --rdzv-id");
    assert_eq!(test.pids("pids").len(), 0);
    // The other one has it from a file.
    fs::write(test.path("key"), format!("{KEY}\n")).unwrap();
    let of_file = ["--nproc-per-node=2", "--rdzv-conf=key_file=key"];
    let second = test.start("second", &mut test.command(&test.c10d("2"), &of_file));
    within(DEADLINE, "all run", || test.pids("pids").len() == 4);
    let guard = first.pid();
    for pid in [vec![guard], first.inner(), test.pids("pids")].concat() {
        let (arguments, environment) = herd_testing::process::arguments_and_environment(pid);
        for text in [arguments, environment] {
            let text = String::from_utf8_lossy(&text).into_owned();
            assert!(!text.contains(KEY), "{pid}: {text}");
        }
    }
    test.touch("go");
    let mut both = [first, second];
    all_end(&mut both, 0);
    drop(stranger);
    assert!(
        !fs::read_to_string(test.path("env.all"))
            .unwrap()
            .contains(KEY)
    );
    assert_eq!(printed(&both), FOUR);
}

#[test]
fn garbage_and_silence_at_the_endpoint_harm_nobody() {
    for is_numbered in [true, false] {
        let test = Nodes::new(PLACE);
        let flags = |rank| {
            if is_numbered {
                test.fixed(rank)
            } else {
                test.c10d("2")
            }
        };
        let more = ["--nproc-per-node=2"];
        let first = test.start("first", &mut test.command(&flags(0), &more));
        let mut strangers = Vec::new();
        within(DEADLINE, "the endpoint is served", || {
            let connected = TcpStream::connect((test.host.as_str(), test.port));
            strangers.extend(connected);
            !strangers.is_empty()
        });
        for count in 0..40_u8 {
            let mut stranger = TcpStream::connect((test.host.as_str(), test.port)).unwrap();
            // Every second one says nothing at all; a listener that has enough closes.
            if count % 2 == 0 {
                let _closed = stranger.write_all(&[count; 4096]);
            }
            strangers.push(stranger);
        }
        let second = test.start("second", &mut test.command(&flags(1), &more));
        let mut both = [first, second];
        all_end(&mut both, 0);
        assert_eq!(printed(&both), FOUR);
    }
}
