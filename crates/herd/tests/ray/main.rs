//! Jobs of type `ray` with the real Ray, in a network namespace of their own.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail the test"
)]

#[path = "../live/mod.rs"]
mod live;

mod lab;

use std::fs;
use std::time::{Duration, Instant};

use herd_launch::{Pid, tree};
use lab::{
    Foreign, Network, Run, all_gone, command_line, job, left, processes, ray_directories, ray_does,
    variable,
};
use live::{Herd, alive, assert_code, children, signal, stderr, stdout};

/// What is given to the job as a secret.
const PASSPHRASE: &str = "open-sesame-4711";

/// An entry point that says where its tasks ran and what they saw, then waits for `go`.
const ENTRY: &str = r#"
import os, pathlib, signal, sys, time
import ray

ray.init(log_to_driver=False)

@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def where():
    time.sleep(0.2)
    return ray.get_runtime_context().get_node_id(), os.environ.get("PASSPHRASE")

def survey():
    seen = set()
    deadline = time.monotonic() + 200
    while len(seen) < int(os.environ["HERD_NUM_NODES"]) and time.monotonic() < deadline:
        seen |= set(ray.get([where.remote() for _ in range(4)]))
    return seen

def asked(number, frame):
    print("asked to end,", len(survey()), "nodes still serve", flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, asked)
signal.signal(signal.SIGINT, asked)
seen = survey()
print(len({node for node, _ in seen}), "nodes took part")
print("secrets backwards", {secret[::-1] for _, secret in seen})
print("rank", os.environ["HERD_RANK"], "of", os.environ["HERD_WORLD_SIZE"], flush=True)
here = pathlib.Path(__file__)
here.with_suffix(".address").write_text(os.environ["RAY_ADDRESS"])
here.with_suffix(".ready").touch()
while not here.with_suffix(".go").exists():
    time.sleep(0.1)
sys.exit(7)
"#;

/// Connects to a cluster and asks who is in it.
const STRANGER: &str = "import ray; ray.init(); print('inside with', len(ray.nodes()))";

/// Starts the job and waits until its tasks have run on all nodes.
fn start(network: &Network, herd: &Herd, name: &str, nodes: u32) -> Run {
    let file = job(herd, name, nodes, ENTRY);
    let mut run = Run(network.herd(herd, &["run", file.to_str().unwrap()]));
    let ready = herd.path(&format!("{name}.ready"));
    ray_does("the cluster", || {
        ready.exists() || run.0.try_wait().unwrap().is_some()
    });
    if !ready.exists() {
        let output = run.output();
        panic!("{}\n{}", stdout(&output), stderr(&output));
    }
    run
}

/// The processes of a job whose command line has this text.
fn named(run: &Run, text: &str) -> Vec<i32> {
    let root = Pid::from_raw(run.pid()).unwrap();
    let all = tree::descendants(root).into_iter();
    all.map(|pid| pid.as_raw_nonzero().get())
        .filter(|&pid| command_line(pid).contains(text))
        .collect()
}

fn end_of(run: Run, began: Instant) -> (std::process::Output, Duration) {
    (run.output(), began.elapsed())
}

/// Bound on the end of a cluster; Ray is to be gone within 10 s, and the machine may be loaded.
const GONE_WITHIN: Duration = Duration::from_secs(50);

#[test]
fn both_nodes_take_part_only_the_token_lets_in_and_nothing_is_left() {
    let network = Network::new();
    let herd = Herd::new();
    let run = start(&network, &herd, "pair", 2);
    let before = processes(run.pid());
    let entry = named(&run, "pair.py")[0];
    let token = variable(entry, "RAY_AUTH_TOKEN").unwrap();
    assert!(token.len() >= 32);
    // I12: neither the token nor the secret is an argument of anybody or in a file of the job.
    for &(pid, _) in &before {
        let line = command_line(pid);
        assert!(
            !line.contains(&token) && !line.contains(PASSPHRASE),
            "{line}"
        );
    }
    for secret in [token.as_str(), PASSPHRASE] {
        let mut grep = std::process::Command::new("grep");
        grep.args(["-rl", "--exclude=secrets.json", secret]);
        let found = grep.arg(herd.path("home")).output().unwrap();
        assert_eq!(stdout(&found), "");
    }
    // Telemetry is off for all of them.
    let head = named(&run, "--head")[0];
    assert_eq!(
        variable(head, "RAY_USAGE_STATS_ENABLED").as_deref(),
        Some("0")
    );
    assert!(command_line(head).contains("--disable-usage-stats"));

    let address = fs::read_to_string(herd.path("pair.address")).unwrap();
    let ask = |mode: &str, token: &str| {
        let variables = [
            ("RAY_ADDRESS", address.as_str()),
            ("RAY_AUTH_MODE", mode),
            ("RAY_AUTH_TOKEN", token),
        ];
        network.python(STRANGER, &variables)
    };
    let known = ask("token", &token);
    assert!(
        stdout(&known).contains("inside with 2"),
        "{}",
        stderr(&known)
    );
    for (mode, wrong) in [
        ("token", "0123456789abcdef0123456789abcdef"),
        ("disabled", ""),
    ] {
        let stranger = ask(mode, wrong);
        assert!(!stranger.status.success(), "{mode}: {}", stdout(&stranger));
    }

    fs::write(herd.path("pair.go"), "").unwrap();
    let (output, took) = end_of(run, Instant::now());
    assert_code(&output, 7);
    let text = stdout(&output);
    assert!(text.contains("2 nodes took part"), "{text}");
    let backwards: String = PASSPHRASE.chars().rev().collect();
    assert!(text.contains(&format!("{{'{backwards}'}}")), "{text}");
    assert!(text.contains("rank 0 of 1"), "{text}");
    // Nothing of it outlives herd itself.
    assert_eq!(left(&herd, &before), Vec::<String>::new());
    assert!(took < GONE_WITHIN, "{took:?}");
    assert!(ray_directories(&herd).is_empty());
}

#[test]
fn a_cancelled_entry_point_still_has_its_cluster_and_then_all_is_gone() {
    let network = Network::new();
    let herd = Herd::new();
    let run = start(&network, &herd, "cancelled", 2);
    let before = processes(run.pid());
    signal(run.pid(), "-TERM");
    let (output, took) = end_of(run, Instant::now());
    assert_code(&output, 143);
    let text = stdout(&output);
    assert!(text.contains("asked to end, 2 nodes still serve"), "{text}");
    assert_eq!(left(&herd, &before), Vec::<String>::new());
    assert!(took < GONE_WITHIN, "{took:?}");
}

#[test]
fn i5_sigkill_of_the_driver_leaves_no_ray() {
    let network = Network::new();
    let herd = Herd::new();
    let mut run = start(&network, &herd, "orphaned", 2);
    let before = processes(run.pid());
    assert_eq!(ray_directories(&herd).len(), 2);
    signal(children(run.pid())[0], "-KILL");
    assert!(!run.0.wait().unwrap().success());
    all_gone(&herd, &before);
}

#[test]
fn a_worker_that_dies_is_the_loss_of_its_node() {
    let network = Network::new();
    let herd = Herd::new();
    let run = start(&network, &herd, "bereft", 2);
    let before = processes(run.pid());
    let worker = named(&run, "--node-name=node1");
    signal(worker[0], "-KILL");
    let (output, _) = end_of(run, Instant::now());
    assert_code(&output, 125);
    let text = stderr(&output);
    let named = "node node1 was lost: its Ray worker was ended by signal 9";
    assert!(text.contains(named), "{text}");
    all_gone(&herd, &before);
}

#[test]
fn i5_sigkill_of_an_executor_ends_its_ray_too() {
    let network = Network::new();
    let herd = Herd::new();
    let run = start(&network, &herd, "decapitated", 2);
    let before = processes(run.pid());
    let executors = children(children(run.pid())[0]);
    let of_node1 = |pid: &&i32| command_line(**pid).contains("--node node1");
    signal(*executors.iter().find(of_node1).unwrap(), "-KILL");
    let (output, _) = end_of(run, Instant::now());
    assert_code(&output, 125);
    assert!(stderr(&output).contains("node1"), "{}", stderr(&output));
    all_gone(&herd, &before);
    assert!(ray_directories(&herd).is_empty());
}

#[test]
fn two_jobs_and_a_foreign_ray_do_not_meet() {
    let network = Network::new();
    let herd = Herd::new();
    let foreign = Foreign::start(&network, &herd);
    let one = start(&network, &herd, "one", 1);
    let two = start(&network, &herd, "two", 1);
    let before = [processes(one.pid()), processes(two.pid())];
    let address = |name: &str| fs::read_to_string(herd.path(name)).unwrap();
    assert_ne!(address("one.address"), address("two.address"));
    for (run, name) in [(one, "one"), (two, "two")] {
        fs::write(herd.path(&format!("{name}.go")), "").unwrap();
        let (output, _) = end_of(run, Instant::now());
        assert_code(&output, 7);
        assert!(stdout(&output).contains("1 nodes took part"));
    }
    for before in &before {
        assert_eq!(left(&herd, before), Vec::<String>::new());
    }
    let variables = [
        ("RAY_ADDRESS", "10.98.0.1:6379"),
        ("RAY_AUTH_MODE", "disabled"),
    ];
    let there = network.python(STRANGER, &variables);
    assert!(
        stdout(&there).contains("inside with 1"),
        "{}",
        stderr(&there)
    );
    assert!(alive(foreign.pid()));
}

#[test]
fn without_ray_the_job_ends_with_127_and_a_hint() {
    let herd = Herd::new();
    let file = job(&herd, "nothing", 2, "raise SystemExit(0)");
    let mut command = herd.command(&["run", file.to_str().unwrap()]);
    let output = command
        .env("PATH", "/usr/bin:/bin")
        .env("PASSPHRASE", PASSPHRASE)
        .output()
        .unwrap();
    assert_code(&output, 127);
    let text = stderr(&output);
    assert!(text.contains("program \"ray\" not found"), "{text}");
    assert!(text.contains("hint: install it with"), "{text}");
}

#[test]
fn i13_render_shows_the_cluster_and_what_a_ray_job_cannot_have_is_refused() {
    let herd = Herd::new();
    let args = [
        "render", "--type", "ray", "-N", "2", "--", "python3", "a.py",
    ];
    let output = herd.run(&args);
    assert_code(&output, 0);
    let text = stdout(&output);
    for shown in [
        "ranks: 1",
        "ray start --head",
        "node1",
        "listens on all addresses",
    ] {
        assert!(text.contains(shown), "{shown} in {text}");
    }
    let text = "type: ray\nrun: a\nprocs_per_node: 2\nenv: {RAY_ADDRESS: auto}\narray: 0-3\n";
    let file = herd.file("wrong.yaml", text);
    let output = herd.run(&["run", file.to_str().unwrap()]);
    assert_code(&output, 2);
    for key in ["procs_per_node", "env.RAY_ADDRESS", "array"] {
        assert!(stderr(&output).contains(key), "{}", stderr(&output));
    }
}
