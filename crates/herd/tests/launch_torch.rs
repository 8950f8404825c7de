//! Real torch under `herd launch`: row 49 of the launcher specification §18, on one node and on
//! several. The interpreters are named by variables that `lab/env` prints; a missing one fails the
//! test and says what to run.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod nodes;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use herd_testing::within;
use nodes::{Namespace, Node, Nodes, json, printed};
use serde_json::Value;

/// For all of a job: importing torch alone takes seconds on a machine that is busy.
const DEADLINE: Duration = Duration::from_mins(8);

/// Trains over two attempts. The last rank raises in the first one, after all have saved; the second
/// goes on from there.
const TRAIN: &str = "\
import os, sys, time, traceback
import torch, torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel

@record
def main():
    attempt = int(os.environ['TORCHELASTIC_RESTART_COUNT'])
    agent = dist.TCPStore(os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']), is_master=False)
    # A rank that is early would find where the others were in the attempt before.
    assert not agent.check([f'rank {os.environ[\"RANK\"]} was here'])
    dist.init_process_group('gloo', init_method='env://')
    rank, world = dist.get_rank(), dist.get_world_size()
    total = torch.tensor([rank + 1.0])
    dist.all_reduce(total)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    state = {'model': model.module.state_dict(), 'step': torch.tensor(0)}
    if attempt > 0:
        checkpoint.load(state, checkpoint_id='saved')
        model.module.load_state_dict(state['model'])
    for _ in range(2):
        model(torch.full((2, 4), rank + 1.0)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        state['step'] += 1
    state['model'] = model.module.state_dict()
    # All ranks have the same weights, since gradients are averaged.
    weights = [torch.zeros(1, 4) for _ in range(world)]
    dist.all_gather(weights, model.module.weight.detach())
    assert all(torch.equal(weights[0], other) for other in weights)
    store = os.environ['TORCHELASTIC_USE_AGENT_STORE']
    place = os.environ['MASTER_ADDR'] + ':' + os.environ['MASTER_PORT']
    line = f'{rank}/{world} sum {total.item():g} step {state[\"step\"].item()} attempt {attempt} store {store}\\n'
    with open('places', 'a') as file:
        file.write(f'{attempt} {place}\\n')
    # One write, so that lines of ranks with one stream stay whole.
    sys.stdout.write(line)
    sys.stdout.flush()
    if attempt == 0:
        agent.set(f'rank {rank} was here', 'yes')
        checkpoint.save(state, checkpoint_id='saved')
        dist.barrier()
        if rank == world - 1:
            raise ValueError('no data in attempt 0')
        time.sleep(3000)
    dist.barrier()
    dist.destroy_process_group()

# A thread of torch that comes while the interpreter ends aborts the process, on busy machines now and then.
try:
    main()
except ValueError:
    traceback.print_exc()
    os._exit(1)
os._exit(0)
";

/// Meets, adds up, and says who serves the store.
const MEET: &str = "\
import os, sys
import torch, torch.distributed as dist
dist.init_process_group('gloo')
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
sys.stdout.write(f'sum {total.item():g} store {os.environ[\"TORCHELASTIC_USE_AGENT_STORE\"]}\\n')
sys.stdout.flush()
dist.barrier()
dist.destroy_process_group()
# A thread of torch that comes after the interpreter's end aborts the process, on busy machines now and then.
os._exit(0)
";

fn lab(variable: &str, script: &str) -> PathBuf {
    let path = std::env::var_os(variable).unwrap_or_else(|| {
        panic!("{variable} is not set: run {script}, then: eval \"$(lab/env)\"")
    });
    PathBuf::from(path)
}

fn torch() -> PathBuf {
    lab("HERD_LAB_TORCH_PYTHON", "lab/torch")
}

/// Debian's torch, older than 2.2.
fn old_torch() -> PathBuf {
    lab("HERD_LAB_DEBIAN_TORCH_PYTHON", "lab/debian-torch")
}

/// `herd launch FLAGS script.py` with an interpreter.
fn command(
    test: &Nodes,
    network: Option<&Namespace>,
    python: &Path,
    script: &str,
    flags: &[String],
) -> Command {
    fs::write(test.path("script.py"), script).unwrap();
    let mut command = test.herd_in(network);
    command
        .arg("launch")
        .args(flags)
        .arg("script.py")
        .env("PYTHON_EXEC", python);
    command
}

fn texts(flags: &[&str]) -> Vec<String> {
    flags.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn end(nodes: &mut [Node], code: i32) {
    within(DEADLINE, "all nodes end", || {
        nodes.iter_mut().all(|node| !node.is_running())
    });
    for node in nodes {
        node.ends(code);
    }
}

/// What `TRAIN` prints on so many ranks.
fn trained(world: usize) -> Vec<String> {
    let sum = world * (world + 1) / 2;
    let mut lines = Vec::new();
    for rank in 0..world {
        lines.push(format!(
            "{rank}/{world} sum {sum} step 2 attempt 0 store True"
        ));
        lines.push(format!(
            "{rank}/{world} sum {sum} step 4 attempt 1 store True"
        ));
    }
    lines
}

/// The error file of a rank of the first attempt, below the directory of logs.
fn error_file(test: &Nodes, logs: &str, local_rank: u32) -> Value {
    let run = fs::read_dir(test.path(logs)).unwrap().next().unwrap();
    let attempt = run.unwrap().path().join("attempt_0");
    json(&attempt.join(local_rank.to_string()).join("error.json"))
}

/// The store of [`TRAIN`] is at the same port in all attempts.
#[track_caller]
fn stays_where_it_is(test: &Nodes) {
    let places = test.lines("places");
    let port = |line: &str| line.rsplit(':').next().map(str::to_owned);
    assert!(
        places.iter().all(|place| port(place) == port(&places[0])),
        "{places:?}"
    );
}

#[test]
fn row_49_one_node_trains_over_two_attempts_at_one_store() {
    let test = Nodes::new("");
    let flags = texts(&[
        "--nproc-per-node=2",
        "--max-restarts=1",
        "--log-dir=logs",
        "--verbose",
    ]);
    let mut command = command(&test, None, &torch(), TRAIN, &flags);
    let mut nodes = [test.start("node", &mut command)];
    end(&mut nodes, 0);
    assert_eq!(printed(&nodes), trained(2), "{}", nodes[0].err());
    let text = nodes[0].err();
    assert!(
        text.contains("the launcher serves the store of the workers: torch "),
        "{text}"
    );
    assert!(
        text.contains("rank 1 (local rank 1) exited with code 1; attempt 1 begins"),
        "{text}"
    );
    stays_where_it_is(&test);
    let said = error_file(&test, "logs", 1);
    assert_eq!(
        said["message"]["message"],
        "ValueError: no data in attempt 0"
    );
}

#[test]
fn row_49_two_nodes_train_over_two_attempts() {
    for is_numbered in [true, false] {
        let test = Nodes::new("");
        let mut nodes = [0, 1].map(|rank| {
            let mut flags = if is_numbered {
                test.fixed(rank)
            } else {
                test.c10d("2")
            };
            flags.extend(texts(&["--nproc-per-node=2", "--max-restarts=1"]));
            flags.push(format!("--log-dir=logs{rank}"));
            let mut command = command(&test, None, &torch(), TRAIN, &flags);
            test.start(&format!("node{rank}"), &mut command)
        });
        end(&mut nodes, 0);
        let text = nodes[0].err() + &nodes[1].err();
        assert_eq!(printed(&nodes), trained(4), "{text}");
        stays_where_it_is(&test);
        assert!(
            text.contains("rank 3 (local rank 1) exited with code 1"),
            "{text}"
        );
        let is_last = |node: &Node| node.out().contains("3/4");
        let last = nodes.iter().position(is_last).unwrap();
        let said = error_file(&test, &format!("logs{last}"), 1);
        assert_eq!(
            said["message"]["message"],
            "ValueError: no data in attempt 0"
        );
    }
}

#[test]
fn row_49_a_failure_for_good_is_told_with_its_traceback_here_and_with_its_rank_elsewhere() {
    let test = Nodes::new("");
    let parent = test.path("parent.json");
    let mut nodes = [0, 1].map(|rank| {
        let mut flags = test.fixed(rank);
        flags.push("--nproc-per-node=1".to_owned());
        let mut command = command(&test, None, &torch(), TRAIN, &flags);
        if rank == 1 {
            command.env("TORCHELASTIC_ERROR_FILE", &parent);
        }
        test.start(&format!("node{rank}"), &mut command)
    });
    end(&mut nodes, 1);
    let text = nodes[1].err();
    let root = text.split("Root Cause (first observed failure):").nth(1);
    let root = root.unwrap_or_else(|| panic!("no report: {text}"));
    assert!(root.contains("rank      : 1 (local_rank: 0)"), "{root}");
    assert!(root.contains("ValueError: no data in attempt 0"), "{root}");
    let copied = json(&parent);
    assert_eq!(
        copied["message"]["message"],
        "ValueError: no data in attempt 0"
    );
    assert_eq!(copied["message"]["errorCode"], 1);
    let text = nodes[0].err();
    assert!(
        text.contains("failed: rank 1 (local rank 0) exited with code 1"),
        "{text}"
    );
}

#[test]
fn row_49_nodes_with_networks_of_their_own_use_the_store_and_nobody_else_does() {
    // A client of the store, from an address that no node has told.
    const STRANGER: &str = "\
import os, socket
if os.environ['RANK'] == os.environ['STRANGE']:
    place = (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))
    stranger = socket.create_connection(place, 60, source_address=('10.77.0.9', 0))
    stranger.sendall(bytes([0]) + (0x3C85F7CE).to_bytes(4, 'little') + bytes([13]) + (7).to_bytes(4, 'little'))
    try:
        print('stranger', len(stranger.recv(4)))
    except OSError:
        print('stranger', 0)
";
    let networks = Namespace::pair();
    for is_numbered in [true, false] {
        let test = Nodes::new("");
        let mut nodes = [0, 1].map(|rank| {
            let mut flags = texts(&["--nnodes=2", "--nproc-per-node=1"]);
            if is_numbered {
                flags.push("--master-addr=10.77.0.1".to_owned());
                flags.push(format!("--node-rank={rank}"));
            } else {
                flags.extend(texts(&["--rdzv-backend=c10d", "--rdzv-endpoint=10.77.0.1"]));
            }
            let mut command = command(&test, networks.get(rank), &torch(), MEET, &flags);
            command
                .env("HERD_RDZV_KEY", "5a".repeat(32))
                .env("GLOO_SOCKET_IFNAME", "eth0");
            test.start(&format!("node{rank}"), &mut command)
        });
        end(&mut nodes, 0);
        let text = nodes[0].err() + &nodes[1].err();
        assert_eq!(printed(&nodes), ["sum 3 store True"; 2], "{text}");
    }
    // The address is one of node 1's, so its interfaces have to be told without it: it comes later.
    networks[1].ip(&["address", "del", "10.77.0.9/24", "dev", "eth0"]);
    let script = format!(
        "import os, subprocess, torch\nif os.environ['RANK'] == '1':\n    \
         subprocess.run(['ip', 'address', 'replace', '10.77.0.9/24', 'dev', 'eth0'], check=True)\n{STRANGER}{MEET}"
    );
    for (allow, answer) in [
        (None, "stranger 0"),
        (Some("--store-allow=10.77.0.9"), "stranger 4"),
    ] {
        let test = Nodes::new("");
        let mut nodes = [0, 1].map(|rank| {
            let mut flags = texts(&["--nnodes=2", "--master-addr=10.77.0.1"]);
            flags.push(format!("--node-rank={rank}"));
            flags.extend(allow.map(str::to_owned));
            let mut command = command(&test, networks.get(rank), &torch(), &script, &flags);
            command
                .env("HERD_RDZV_KEY", "5a".repeat(32))
                .env("GLOO_SOCKET_IFNAME", "eth0")
                .env("STRANGE", "1");
            test.start(&format!("node{rank}"), &mut command)
        });
        end(&mut nodes, 0);
        let text = nodes[0].err() + &nodes[1].err();
        assert_eq!(
            printed(&nodes),
            [answer, "sum 3 store True", "sum 3 store True"],
            "{text}"
        );
        let is_told = text.contains("the store refused a connection from 10.77.0.9");
        assert_eq!(is_told, allow.is_none(), "{text}");
        networks[1].ip(&["address", "del", "10.77.0.9/24", "dev", "eth0"]);
    }
}

#[test]
fn row_49_a_torch_that_does_not_know_the_store_opens_its_own_at_a_free_port() {
    let test = Nodes::new("");
    let flags = texts(&["--nproc-per-node=2", "--verbose"]);
    let mut command = command(&test, None, &old_torch(), MEET, &flags);
    let mut nodes = [test.start("node", &mut command)];
    end(&mut nodes, 0);
    assert_eq!(printed(&nodes), ["sum 3 store False"; 2]);
    let text = nodes[0].err();
    assert!(text.contains("is older than 2.2"), "{text}");
}

#[test]
fn the_store_is_left_to_rank_0_where_torch_is_absent_or_not_known() {
    const OPEN: &str = "\
import os, socket
if os.environ['RANK'] == '0':
    socket.create_server((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])))
print(os.environ['TORCHELASTIC_USE_AGENT_STORE'])
";
    let test = Nodes::new("");
    let made = Command::new("python3")
        .args(["-m", "venv", "--without-pip"])
        .arg(test.path("venv"))
        .status();
    assert!(made.unwrap().success());
    fs::create_dir_all(test.path("new/torch")).unwrap();
    fs::write(test.path("new/torch/__init__.py"), "").unwrap();
    fs::write(test.path("new/torch/version.py"), "__version__ = '99.1'\n").unwrap();
    let absent = test.path("venv/bin/python3");
    let cases = [
        (absent.clone(), "", "has no torch"),
        (torch(), "new", "torch 99.1 is newer than what herd knows"),
        (torch(), "off", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE is 1"),
    ];
    for (python, setting, said) in cases {
        let flags = texts(&["--nproc-per-node=2", "--verbose"]);
        let mut command = command(&test, None, &python, OPEN, &flags);
        command.env_remove("PYTHONPATH");
        match setting {
            "new" => command.env("PYTHONPATH", test.path("new")),
            "off" => command.env("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"),
            _ => &mut command,
        };
        let mut nodes = [test.start("node", &mut command)];
        end(&mut nodes, 0);
        assert_eq!(printed(&nodes), ["False"; 2]);
        let text = nodes[0].err();
        assert!(text.contains(said), "{text}");
    }
    // All nodes do as the one that knows least.
    let mut nodes = [torch(), absent].map(|python| {
        let is_zero = python == torch();
        let mut flags = test.fixed(usize::from(!is_zero));
        flags.push("--nproc-per-node=1".to_owned());
        let mut command = command(&test, None, &python, OPEN, &flags);
        test.start(if is_zero { "node0" } else { "node1" }, &mut command)
    });
    end(&mut nodes, 0);
    assert_eq!(printed(&nodes), ["False"; 2]);
}
