//! `herd launch` on several nodes from outside, by the rows of the launcher specification §18: nodes
//! meet, leave together, begin again and are missed. Nodes are launchers on this machine, some of
//! them with a network of their own.

mod nodes;

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use herd_testing::{alive, eventually, signal, state, within};
use nodes::{DEADLINE, Namespace, Node, Nodes, json, printed};

/// A key for all nodes of a job.
const KEY: &str = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";

/// Says where a worker stands.
const PLACE: &str =
    "echo $RANK/$WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $TORCHELASTIC_RESTART_COUNT";

const FOUR: [&str; 4] = ["0/4 0/2 0", "1/4 0/2 0", "2/4 1/2 0", "3/4 1/2 0"];

fn all_end(nodes: &mut [Node], code: i32) {
    for node in nodes {
        node.ends(code);
    }
}

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
fn row_48_one_node_begins_alone_and_a_late_one_makes_all_begin_again_uncounted() {
    let test = Nodes::new(&format!(
        "{PLACE} >> seen; until [ $WORLD_SIZE = 4 ] && [ -e go ]; do sleep 0.05; done"
    ));
    let more = ["--nproc-per-node=2", "--rdzv-conf=last_call_timeout=1"];
    let start = |name: &str| test.start(name, &mut test.command(&test.c10d("1:2"), &more));
    let first = start("first");
    within(DEADLINE, "it begins alone", || {
        test.lines("seen") == ["0/2 0/1 0", "1/2 0/1 0"]
    });
    let late = start("late");
    within(DEADLINE, "all begin again", || {
        test.lines("seen").len() == 6
    });
    test.touch("go");
    let mut both = [first, late];
    all_end(&mut both, 0);
    let mut expected = vec!["0/2 0/1 0", "1/2 0/1 0"];
    expected.extend(FOUR);
    expected.sort_unstable();
    assert_eq!(test.lines("seen"), expected);
    both[0].says("1 more node is here; all workers start again");
}

#[test]
fn row_48_the_others_go_on_without_a_node_that_dies_where_they_are_enough() {
    // No restart is allowed, and none is counted.
    let test = Nodes::new(&format!(
        "{PLACE} >> seen; until [ $WORLD_SIZE = 2 ]; do sleep 0.05; done"
    ));
    let more = ["--nproc-per-node=2", "--rdzv-conf=last_call_timeout=2"];
    let start = |name: &str| test.start(name, &mut test.command(&test.c10d("1:2"), &more));
    let mut first = start("first");
    // Whoever serves the endpoint is to live.
    within(DEADLINE, "the endpoint is served", || {
        TcpStream::connect((test.host.as_str(), test.port)).is_ok()
    });
    let second = start("second");
    within(DEADLINE, "both run", || test.lines("seen").len() == 4);
    second.kill_inner();
    // Nobody is waited for longer than the last call.
    first.ends(0);
    let seen = test.lines("seen");
    assert_eq!(
        seen.iter().filter(|line| line.contains("/2 0/1 0")).count(),
        2
    );
    first.says("is gone: its connection broke");
}

#[test]
fn row_48_a_failure_that_a_dead_node_has_caused_is_no_failure() {
    // As a worker of torch does, this one fails as soon as the other node is gone; its neighbour
    // takes longer to end than a failure is kept from other nodes.
    let test = Nodes::new(&format!(
        "{PLACE} >> seen; [ $WORLD_SIZE = 2 ] && exit
         [ -z \"$SECOND\" ] || {{ echo $PPID > peer; exec sleep 600; }}
         until [ -s peer ]; do sleep 0.02; done
         trap 'sleep 2; exit' TERM
         echo $$ >> ready.$LOCAL_RANK
         while kill -0 $(cat peer); do sleep 0.02; done
         [ $LOCAL_RANK = 0 ] || while :; do sleep 0.1; done
         exit 1"
    ));
    let more = ["--nproc-per-node=2", "--rdzv-conf=last_call_timeout=1"];
    let mut first = test.start("first", &mut test.command(&test.c10d("1:2"), &more));
    within(DEADLINE, "the endpoint is served", || {
        TcpStream::connect((test.host.as_str(), test.port)).is_ok()
    });
    let mut command = test.command(&test.c10d("1:2"), &more);
    let second = test.start("second", command.env("SECOND", "yes"));
    within(DEADLINE, "both run", || {
        let ready = ["ready.0", "ready.1"].map(|name| test.pids(name).len());
        test.lines("seen").len() == 4 && ready == [1, 1]
    });
    // So that it sees its worker's end and the other node's together.
    let [launcher] = first.inner()[..] else {
        panic!("no launcher");
    };
    signal(launcher, "-STOP");
    second.kill_inner();
    let failing = test.pids("ready.0")[0];
    within(DEADLINE, "the worker has failed", || {
        state(failing) == Some('Z')
    });
    signal(launcher, "-CONT");
    first.ends(0);
    first.says("is gone");
}

#[test]
fn restarts_are_counted_for_the_job_and_all_nodes_begin_each_together() {
    // Another node's worker fails each time.
    let test = Nodes::new(&format!(
        "{PLACE} >> seen
         case $RANK/$TORCHELASTIC_RESTART_COUNT in
         3/0|0/1|2/2) until [ $(wc -l < seen) = $((4 * (TORCHELASTIC_RESTART_COUNT + 1))) ]; do sleep 0.02; done; exit 5 ;;
         esac; exec sleep 600"
    ));
    let mut both = test.two(
        |rank| test.fixed(rank),
        &["--max-restarts=2", "--exit-code=worker"],
    );
    both[0].ends(1);
    both[1].ends(5);
    let seen = test.lines("seen");
    for attempt in 0..3 {
        let of = |line: &&String| line.ends_with(&format!(" {attempt}"));
        assert_eq!(seen.iter().filter(of).count(), 4, "{seen:?}");
    }
    both[0].says("rank 3 (local rank 1) exited with code 5; all workers start again");
    both[0].says("rank 0 (local rank 0) exited with code 5; attempt 2 begins, 0 restarts are left");
    both[0].says("failed: rank 2 (local rank 0) exited with code 5; the workers here were ended");
    both[1].says("exitcode  : 5");
}

#[test]
fn nodes_leave_together() {
    let test = Nodes::new(
        "echo $RANK >> done.$GROUP_RANK; [ $GROUP_RANK = 0 ] || until [ -e go ]; do sleep 0.05; done",
    );
    let mut both = test.two(|rank| test.fixed(rank), &[]);
    both[0].says("the workers here are done; waiting for those of other nodes");
    assert_eq!(test.lines("done.0"), ["0", "1"]);
    assert!(both[0].is_running());
    test.touch("go");
    all_end(&mut both, 0);
}

#[test]
fn a_node_that_is_killed_ends_the_others_with_its_name() {
    for (is_numbered, is_outright) in [(true, true), (false, true), (true, false)] {
        let test = Nodes::new("echo $$ >> pids; exec sleep 600");
        let flags = |rank: usize| {
            if is_numbered {
                test.fixed(rank)
            } else {
                let mut flags = test.c10d("2");
                flags.push(format!("--rdzv-conf=is_host={}", rank == 0));
                flags
            }
        };
        let mut both = test.two(flags, &[]);
        within(DEADLINE, "all run", || test.pids("pids").len() == 4);
        let reason = if is_outright {
            both[1].kill_inner();
            "its connection broke"
        } else {
            // What it guards says goodbye.
            both[1].signal("-KILL");
            "it was stopped"
        };
        let began = Instant::now();
        both[0].ends(1);
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "they die of TERM"
        );
        let text = both[0].err();
        let node = text.split("herd launch: node ").nth(1).unwrap();
        let said = format!(" is gone: {reason}; the workers here were ended");
        assert!(node.contains(&said), "{text}");
        eventually("all workers are gone", || {
            !test.pids("pids").iter().any(|&pid| alive(pid))
        });
    }
}

#[test]
fn the_others_end_when_whoever_serves_the_endpoint_is_killed() {
    let test = Nodes::new("echo $$ >> pids; exec sleep 600");
    let mut both = test.two(|rank| test.fixed(rank), &["--max-restarts=3"]);
    within(DEADLINE, "all run", || test.pids("pids").len() == 4);
    both[0].kill_inner();
    both[1].ends(1);
    both[1].says("lost the launcher that serves the rendezvous");
    eventually("all workers are gone", || {
        !test.pids("pids").iter().any(|&pid| alive(pid))
    });
}

#[test]
fn a_program_that_cannot_start_on_one_node_ends_the_others_with_the_reason() {
    let test = Nodes::new("exec sleep 600");
    let mut first = test.start(
        "first",
        &mut test.command(&test.fixed(0), &["--nproc-per-node=2"]),
    );
    let mut command = test.herd_in(None);
    command.arg("launch").args(test.fixed(1));
    let mut second = test.start("second", command.args(["--no-python", "./nowhere"]));
    second.ends(1);
    first.ends(1);
    let text = first.err();
    assert!(
        text.contains("node 1 (") && text.contains("./nowhere"),
        "{text}"
    );
}

#[test]
fn row_28_a_signal_while_nodes_are_waited_for_ends_the_launcher_with_an_error_file() {
    let test = Nodes::new("touch started");
    let nowhere = vec![
        "--nnodes=2".to_owned(),
        "--rdzv-backend=c10d".to_owned(),
        "--rdzv-endpoint=no-such-host.invalid".to_owned(),
    ];
    for (index, flags) in [test.fixed(0), test.fixed(1), test.c10d("2"), nowhere]
        .iter()
        .enumerate()
    {
        for (name, number) in [("TERM", 15), ("INT", 2)] {
            let error_file = test.path(&format!("{index}{name}.json"));
            let mut command = test.command(flags, &["--rdzv-conf=join_timeout=600"]);
            command.env("TORCHELASTIC_ERROR_FILE", &error_file);
            let mut node = test.start("waiting", &mut command);
            // It watches for signals before it waits.
            within(DEADLINE, "the launcher runs", || {
                let handles = |pid: &i32| {
                    let status = fs::read_to_string(format!("/proc/{pid}/status"));
                    let status = status.unwrap_or_default();
                    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
                    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
                    caught.is_some_and(|mask| mask & (1 << (number - 1)) != 0)
                };
                node.inner().iter().any(handles)
            });
            node.signal(&format!("-{name}"));
            node.ends(1);
            let said = json(&error_file);
            let message = said["message"]["message"].as_str().unwrap();
            assert!(
                message.starts_with("SignalException: Process "),
                "{message}"
            );
            assert!(
                message.ends_with(&format!(" got signal: {number}")),
                "{message}"
            );
            let time = said["message"]["extraInfo"]["timestamp"].as_str().unwrap();
            assert!(time.parse::<u64>().is_ok(), "{time}");
        }
    }
    assert!(!test.path("started").exists());
}

#[test]
fn a_missing_node_is_named_after_ten_seconds_and_may_still_come() {
    let test = Nodes::new(PLACE);
    let more = ["--nproc-per-node=2"];
    let second = test.start("second", &mut test.command(&test.fixed(1), &more));
    second.says("waiting for 10 s: connecting to ");
    let first = test.start("first", &mut test.command(&test.fixed(0), &more));
    let mut both = [first, second];
    all_end(&mut both, 0);
    assert_eq!(printed(&both), FOUR);

    let test = Nodes::new(PLACE);
    let first = test.start("first", &mut test.command(&test.fixed(0), &more));
    first.says("1 of 2 nodes are at ");
    first.says("missing: node rank 1 (giving up after 900 s)");
    let second = test.start("second", &mut test.command(&test.fixed(1), &more));
    let mut both = [first, second];
    all_end(&mut both, 0);
    assert_eq!(printed(&both), FOUR);
}

#[test]
fn row_48_one_that_waits_for_more_nodes_than_it_needs_says_until_when() {
    let test = Nodes::new(PLACE);
    let conf = "--rdzv-conf=last_call_timeout=11";
    let mut node = test.start("first", &mut test.command(&test.c10d("1:2"), &[conf]));
    node.says("which is enough: they begin once nobody else has come for 11 s");
    node.ends(0);
    let said = node.err();
    assert!(said.contains("1 of 1 to 2 nodes are at "), "{said}");
    // Where there are enough nobody gives up.
    assert!(!said.contains("giving up"), "{said}");
}

#[test]
fn nodes_that_do_not_come_in_time_end_the_others_with_the_reason() {
    let test = Nodes::new("touch started");
    let conf = "--rdzv-conf=timeout=1,join_timeout=1";
    for flags in [test.fixed(0), test.fixed(1), test.c10d("2")] {
        let error_file = test.path("error.json");
        let mut command = test.command(&flags, &[conf]);
        command.env("TORCHELASTIC_ERROR_FILE", &error_file);
        let mut node = test.start("waiting", &mut command);
        node.ends(1);
        node.says("not complete within 1 s");
        let message = json(&error_file)["message"]["message"].to_string();
        assert!(message.contains("not complete within 1 s"), "{message}");
        fs::remove_file(error_file).unwrap();
    }
    assert!(!test.path("started").exists());
}

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
    within(DEADLINE, "the endpoint is served", || {
        TcpStream::connect((test.host.as_str(), test.port)).is_ok()
    });
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

/// Variables of the node with this rank.
type Variables = Vec<(&'static str, String)>;

/// Two nodes, told apart by these variables alone, meet; the second says this.
#[track_caller]
fn meet_by(test: &Nodes, flags: &[&str], said: &str, variables: impl Fn(usize) -> Variables) {
    let port = format!("--master-port={}", test.port);
    let mut both = [0, 1].map(|rank| {
        let own = [&port, "--nproc-per-node=2", "--verbose"];
        let mut command = test.command(&[], &[&own, flags].concat());
        test.start(&format!("node{rank}"), command.envs(variables(rank)))
    });
    all_end(&mut both, 0);
    let place = test.host.as_str();
    let expected = [&FOUR[..], &[place; 4]].concat();
    let mut expected: Vec<&str> = expected;
    expected.sort_unstable();
    assert_eq!(printed(&both), expected, "{said}");
    both[1].says(said);
}

#[test]
fn surroundings_say_what_the_command_line_leaves_open() {
    let test = Nodes::new(&format!("{PLACE}; echo $MASTER_ADDR"));
    let address = format!("--master-addr={}", test.host);
    meet_by(&test, &[], "2 nodes, from SLURM_STEP_NUM_NODES", |rank| {
        vec![
            ("SLURM_NODEID", rank.to_string()),
            ("SLURM_STEP_NUM_NODES", "2".into()),
            ("SLURM_STEP_NUM_TASKS", "2".into()),
            ("SLURM_STEP_NODELIST", format!("{},other", test.host)),
        ]
    });
    let said = "node rank 1, from SKYPILOT_NODE_RANK";
    meet_by(&test, &[], said, |rank| {
        vec![
            ("SKYPILOT_NODE_RANK", rank.to_string()),
            ("SKYPILOT_NUM_NODES", "2".into()),
            ("SKYPILOT_NODE_IPS", format!("{0}\n{0}", test.host)),
        ]
    });
    let open_mpi = |rank: usize| -> Variables {
        vec![
            ("OMPI_COMM_WORLD_RANK", rank.to_string()),
            ("OMPI_COMM_WORLD_SIZE", "2".into()),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "1".into()),
        ]
    };
    let said = "node rank 1, from OMPI_COMM_WORLD_RANK";
    meet_by(&test, &[&address], said, open_mpi);
    let said = "node rank 1, from JOB_COMPLETION_INDEX";
    meet_by(&test, &[&address, "--nnodes=2"], said, |rank| {
        vec![("JOB_COMPLETION_INDEX", rank.to_string())]
    });
    // Several nodes and nowhere to meet.
    let mut command = test.command(&[], &[]);
    let mut nowhere = test.start("nowhere", command.envs(open_mpi(0)));
    nowhere.ends(2);
    nowhere.says("hint: give --master-addr or --rdzv-endpoint");
}

#[test]
fn row_44_the_rendezvous_by_torchruns_variables() {
    let test = Nodes::new(&format!("{PLACE}; echo $MASTER_ADDR"));
    let said = "node 1 of 2, ranks 2 to 3 of 4";
    meet_by(&test, &[], said, |rank| {
        vec![
            ("PET_NNODES", "2".into()),
            ("PET_NODE_RANK", rank.to_string()),
            ("PET_MASTER_ADDR", test.host.clone()),
        ]
    });
    let mut both = [0, 1].map(|rank| {
        let mut command = test.command(&[], &[]);
        command.envs([
            ("PET_NNODES", "2"),
            ("PET_NPROC_PER_NODE", "2"),
            ("PET_RDZV_BACKEND", "c10d"),
            ("PET_RDZV_ENDPOINT", &format!("{}:{}", test.host, test.port)),
            ("PET_RDZV_CONF", "join_timeout=100"),
        ]);
        test.start(&format!("node{rank}"), &mut command)
    });
    all_end(&mut both, 0);
    assert_eq!(printed(&both).len(), 8);
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
fn a_signal_to_one_node_ends_its_workers_and_the_others_miss_it() {
    let test = Nodes::new("echo $$ >> pids; exec sleep 600");
    let mut both = test.two(|rank| test.fixed(rank), &[]);
    within(DEADLINE, "all run", || test.pids("pids").len() == 4);
    both[1].signal("-TERM");
    both[1].ends(1);
    both[1].says("ended by signal 15");
    both[0].ends(1);
    both[0].says("node 1 (");
    both[0].says("is gone: it was stopped");
    eventually("all workers are gone", || {
        !test.pids("pids").iter().any(|&pid| alive(pid))
    });
}

#[test]
fn a_node_that_stands_by_takes_a_place_that_becomes_free_or_ends_with_the_job() {
    let test = Nodes::new(&format!(
        "{PLACE} >> seen; echo $$ >> pids; until [ -e go ]; do sleep 0.05; done"
    ));
    let more = ["--nproc-per-node=2", "--max-restarts=1"];
    let start = |name: &str| test.start(name, &mut test.command(&test.c10d("2"), &more));
    let mut first = start("first");
    within(DEADLINE, "the endpoint is served", || {
        TcpStream::connect((test.host.as_str(), test.port)).is_ok()
    });
    let second = start("second");
    within(DEADLINE, "both run", || test.pids("pids").len() == 4);
    let mut third = start("third");
    third.says("all 2 places are taken; this node stands by");
    signal(second.pid(), "-KILL");
    within(DEADLINE, "it takes the place", || {
        test.pids("pids").len() == 8
    });
    let mut fourth = start("fourth");
    fourth.says("this node stands by");
    test.touch("go");
    for node in [&mut first, &mut third, &mut fourth] {
        node.ends(0);
    }
    fourth.says("the job has finished");
}
