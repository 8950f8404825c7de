//! Real torch at our store: issue B, point 4, and what of row 49 is the store's. The interpreters are
//! named by variables that `lab/env` prints; a missing one fails the test and says what to run.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod serving;

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use herd_launch::store::{Notice, Options, ProtocolError, Support, support};
use herd_testing::{eventually, within};
use serving::Serving;

/// For one Python with torch, whose import alone takes seconds on a machine that is busy.
const DEADLINE: Duration = Duration::from_mins(5);

fn lab(variable: &str, script: &str) -> PathBuf {
    let path = std::env::var_os(variable).unwrap_or_else(|| {
        panic!("{variable} is not set: run {script}, then: eval \"$(lab/env)\"")
    });
    PathBuf::from(path)
}

fn torch() -> PathBuf {
    lab("HERD_LAB_TORCH_PYTHON", "lab/torch")
}

fn old_torch() -> PathBuf {
    lab("HERD_LAB_DEBIAN_TORCH_PYTHON", "lab/debian-torch")
}

/// A Python process with what it prints in a file. Killed where the test ends before it does.
struct Python {
    child: Child,
    output: tempfile::NamedTempFile,
}

impl Python {
    fn start(python: &Path, script: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let output = tempfile::NamedTempFile::new().unwrap();
        let file: File = output.reopen().unwrap();
        let child = Command::new(python)
            .args(["-u", "-c", script])
            .args(arguments)
            .envs(variables.iter().copied())
            .env("OMP_NUM_THREADS", "1")
            .stdin(Stdio::null())
            .stderr(file.try_clone().unwrap())
            .stdout(file)
            .spawn()
            .unwrap();
        Self { child, output }
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.output.path()).unwrap()
    }

    /// Its code and what it printed.
    fn wait(&mut self) -> (Option<i32>, String) {
        let mut status = None;
        within(DEADLINE, "Python ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        (status.unwrap().code(), self.text())
    }

    fn succeed(&mut self) -> String {
        let (code, text) = self.wait();
        assert_eq!(code, Some(0), "{text}");
        text
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Runs a script with the port of a new store as its first argument, and wants it to succeed.
fn with_store(script: &str) -> String {
    let store = Serving::start(Options::default());
    let port = store.port.to_string();
    let text = Python::start(&torch(), script, &[&port], &[]).succeed();
    assert_eq!(store.notices(), [], "{text}");
    eventually("its connections are gone", || store.connections() == 0);
    text
}

/// Every operation, at torch's own server and at ours: the same answers and the same errors.
const OPERATIONS: &str = "
import sys
from datetime import timedelta
import torch.distributed as dist

def attempt(act):
    try:
        return act()
    except Exception as error:
        return type(error).__name__

def operations(port):
    client = dist.TCPStore('127.0.0.1', port, 2, False, timedelta(seconds=60))
    other = client.clone()
    steps = [
        lambda: client.set('k', 'v'),
        lambda: other.get('k'),
        lambda: client.set('big', b'x' * 8388608),
        lambda: len(other.get('big')),
        lambda: client.delete_key('big'),
        lambda: client.add('n', 5),
        lambda: other.add('n', -12),
        lambda: client.get('n'),
        lambda: client.compare_set('c', 'old', 'new'),
        lambda: client.check(['c']),
        lambda: client.compare_set('c', '', 'one'),
        lambda: client.compare_set('c', 'no', 'two'),
        lambda: client.compare_set('c', 'one', 'two'),
        lambda: client.wait(['k', 'n', 'c']),
        lambda: client.wait(['missing', 'k'], timedelta(milliseconds=50)),
        lambda: client.set_timeout(timedelta(milliseconds=100)),
        lambda: client.get('missing'),
        lambda: client.set_timeout(timedelta(seconds=60)),
        lambda: client.check(['k', 'n']),
        lambda: client.check(['k', 'missing']),
        lambda: client.check([]),
        lambda: client.num_keys(),
        lambda: client.append('k', '+more'),
        lambda: client.append('fresh', 'begin'),
        lambda: client.multi_get(['k', 'fresh']),
        lambda: client.multi_set(['m1', 'm2', 'm3'], ['1', '', '333']),
        lambda: other.multi_get(['m3', 'm1', 'm2']),
        lambda: client.has_extended_api(),
        lambda: client.delete_key('k'),
        lambda: client.delete_key('k'),
        lambda: client.queue_push('q', 'first'),
        lambda: client.queue_push('q', 'second'),
        lambda: client.queue_len('q'),
        lambda: client.check(['q']),
        lambda: client.wait(['q']),
        lambda: client.delete_key('q'),
        lambda: client.num_keys(),
        lambda: other.queue_pop('q'),
        lambda: other.queue_pop('q', False),
        lambda: other.queue_pop('q', False),
        lambda: client.queue_len('q'),
        lambda: client.check(['q']),
        lambda: client.set_timeout(timedelta(milliseconds=100)),
        lambda: client.queue_pop('q'),
        lambda: client.set_timeout(timedelta(seconds=60)),
        lambda: sorted(client.list_keys()),
        lambda: client.barrier('alone', 1),
        lambda: client.barrier('two', 2, timedelta(milliseconds=50)),
        lambda: other.barrier('two', 2, timedelta(seconds=60)),
        lambda: client.get('two'),
        lambda: dist.PrefixStore('p', client).set('k', 'prefixed'),
        lambda: client.get('p/k'),
        lambda: client.num_keys(),
        lambda: client.set('word', 'no number'),
        lambda: other.add('word', 1),
        lambda: client.get('word'),
    ]
    return [attempt(step) for step in steps]

theirs = dist.TCPStore('127.0.0.1', 0, None, True, wait_for_workers=False)
expected = operations(theirs.port)
found = operations(int(sys.argv[1]))
for number, (one, two) in enumerate(zip(expected, found)):
    assert one == two, f'step {number}: theirs {one!r}, ours {two!r}'
assert found[1] == b'v' and found[6] == -7 and 'DistNetworkError' in found, found
print(len(found), 'operations')
";

#[test]
fn every_operation_is_answered_as_torchs_own_server_does() {
    let store = Serving::start(Options::default());
    let port = store.port.to_string();
    let text = Python::start(&torch(), OPERATIONS, &[&port], &[]).succeed();
    assert!(text.contains("56 operations"), "{text}");
    // The one that adds to a word is cut off, as torch does it.
    assert_eq!(store.notices().len(), 1, "{:?}", store.notices());
}

/// Waits that end by a write and by their time, at the same moment where that can be had.
const WAITS: &str = "
import sys, threading
from datetime import timedelta
import torch.distributed as dist
client = dist.TCPStore('127.0.0.1', int(sys.argv[1]), None, False, timedelta(seconds=60))
other = client.clone()

timer = threading.Timer(0.2, lambda: other.set('late', 'come'))
timer.start()
assert client.get('late') == b'come'
timer.join()

over = both = 0
for round in range(300):
    key = f'race{round}'
    # The write begins with the wait; which is first is chance.
    bound = timedelta(milliseconds=1)
    thread = threading.Thread(target=other.set, args=(key, str(round)))
    if round % 3 == 0: thread.start()
    try:
        client.wait([key], bound)
        both += 1
    except dist.DistStoreError:
        over += 1
    if round % 3: thread.start()
    thread.join()
    # Client and server still understand each other.
    assert client.get(key) == str(round).encode()
assert over, (over, both)

# Each push brings one client back.
got = []
def take(store):
    got.append(store.queue_pop('queue'))
clones = [client.clone() for _ in range(8)]
threads = [threading.Thread(target=take, args=(clone,)) for clone in clones]
for thread in threads: thread.start()
for number in range(8): other.queue_push('queue', str(number))
for thread in threads: thread.join(60)
assert sorted(got) == [str(number).encode() for number in range(8)], got
print('over', over, 'both', both)
";

#[test]
fn waits_end_by_writes_by_time_and_by_both() {
    with_store(WAITS);
}

/// 256 clients at once, as threads of one process.
const MANY: &str = "
import sys, threading
from datetime import timedelta
import torch.distributed as dist
COUNT = 256
port = int(sys.argv[1])
errors = []
def work(rank):
    try:
        store = dist.TCPStore('127.0.0.1', port, COUNT, False, timedelta(seconds=240))
        store.set(f'address/{rank}', f'node{rank}')
        store.barrier('all', COUNT, timedelta(seconds=240))
        other = (rank + 1) % COUNT
        assert store.get(f'address/{other}') == f'node{other}'.encode()
        store.add('done', 1)
        if store.add('last', 1) == COUNT: store.set('end', 'x')
        store.wait(['end'], timedelta(seconds=240))
        assert store.add('done', 0) == COUNT
    except BaseException as error:
        errors.append((rank, error))
threads = [threading.Thread(target=work, args=(rank,)) for rank in range(COUNT)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not errors, errors[:3]
print('all')
";

#[test]
fn two_hundred_and_fifty_six_clients_meet() {
    with_store(MANY);
}

/// A training with gloo as a launcher starts it. In attempt 0 one rank dies in the middle.
const TRAIN: &str = "
import os, sys
from datetime import timedelta
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group('gloo', init_method='env://', timeout=timedelta(seconds=200))
rank, world, attempt = dist.get_rank(), dist.get_world_size(), os.environ['TORCHELASTIC_RESTART_COUNT']
total = torch.tensor([rank + 1.0])
dist.all_reduce(total)
assert total.item() == world * (world + 1) / 2
gathered = [None] * world
dist.all_gather_object(gathered, f'{attempt}/{rank}')
assert gathered == [f'{attempt}/{other}' for other in range(world)], gathered
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    if attempt == '0' and rank == 1 and step == 2: os._exit(3)
    optimizer.zero_grad()
    model(torch.full((2, 4), rank + step + 1.0)).sum().backward()
    optimizer.step()
group = dist.new_group(list(range(world // 2)))
if rank < world // 2: dist.barrier(group)
dist.barrier()
weights = model.module.weight.detach().flatten().tolist()
if rank == 0: print('weights', weights)
others = [None] * world
dist.all_gather_object(others, weights)
assert all(other == weights for other in others), others
dist.destroy_process_group()
print('rank', rank, 'done')
sys.stdout.flush()
# A thread of torch that comes after the interpreter's end aborts the process, on busy machines now and then.
os._exit(0)
";

const WORLD: usize = 4;

fn start_workers(store: &Serving, attempt: &str) -> Vec<Python> {
    let (port, world) = (store.port.to_string(), WORLD.to_string());
    let ranks = (0..WORLD).map(|rank| rank.to_string());
    ranks
        .map(|rank| {
            let variables = [
                ("RANK", rank.as_str()),
                ("LOCAL_RANK", &rank),
                ("WORLD_SIZE", &world),
                ("MASTER_ADDR", "127.0.0.1"),
                ("MASTER_PORT", &port),
                ("TORCHELASTIC_USE_AGENT_STORE", "True"),
                ("TORCHELASTIC_RESTART_COUNT", attempt),
                ("TORCHELASTIC_MAX_RESTARTS", "1"),
                ("TORCHELASTIC_RUN_ID", "test"),
                ("GLOO_SOCKET_IFNAME", "lo"),
            ];
            Python::start(&torch(), TRAIN, &[], &variables)
        })
        .collect()
}

#[test]
fn two_attempts_of_a_training_use_one_store() {
    let store = Serving::start(Options::default());
    let mut first = start_workers(&store, "0");
    assert_eq!(first[1].wait().0, Some(3), "{}", first[1].text());
    // The others are ended, as a launcher does it.
    drop(first);
    store.reset();
    eventually("nobody of the first attempt is left", || {
        store.connections() == 0
    });
    let mut second = start_workers(&store, "1");
    for worker in &mut second {
        let text = worker.succeed();
        assert!(text.contains("done"), "{text}");
    }
    assert_eq!(store.notices(), []);
}

/// The protocol of torch 1.13 is another one; it is turned away, and others do not notice.
#[test]
fn a_torch_that_is_too_old_is_turned_away() {
    let store = Serving::start(Options::default());
    let port = store.port.to_string();
    let script = "
import sys
from datetime import timedelta
import torch.distributed as dist
dist.TCPStore('127.0.0.1', int(sys.argv[1]), 2, False, timedelta(seconds=20))
";
    let (code, text) = Python::start(&old_torch(), script, &[&port], &[]).wait();
    assert_eq!(code, Some(1), "{text}");
    let is_it = |notice: &Notice| {
        matches!(
            notice,
            Notice::Protocol {
                reason: ProtocolError::NotValidated,
                ..
            }
        )
    };
    eventually("it is told", || store.notices().iter().any(is_it));
    Python::start(&torch(), script, &[&port], &[]).succeed();
}

/// What is read from files is what the interpreter itself says.
#[test]
fn the_version_of_torch_is_found_without_python() {
    let environment = |name: &str| (name == "HOME").then(|| OsStr::new("/nonexistent"));
    let version = |python: &Path| {
        let script = "import torch; print('version', torch.__version__)";
        let text = Python::start(python, script, &[], &[("HOME", "/nonexistent")]).succeed();
        let line = text.lines().find_map(|line| line.strip_prefix("version "));
        line.unwrap().to_owned()
    };
    let new = torch();
    assert_eq!(support(&new, environment), Support::Known(version(&new)));
    let old = old_torch();
    assert_eq!(support(&old, environment), Support::TooOld(version(&old)));
    let without = lab("HERD_LAB_RAY_PYTHON", "lab/ray");
    assert_eq!(support(&without, environment), Support::Absent);
}
