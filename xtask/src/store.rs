//! How fast workers get and set keys at herd's store, beside torch's own server of the same protocol.
//!
//! The clients are torch's own, forked from one process that has imported it: they need more processor
//! time than either server, so what the servers themselves take is shown as well.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use herd_launch::store::{Options, Server};

use crate::table::{Row, markdown};

const WORKERS: u32 = 64;
const KEYS: u32 = 1000;

/// Serves until its standard input ends; first prints the port.
const PEER: &str = "
import sys
import torch.distributed as dist
store = dist.TCPStore('127.0.0.1', 0, None, True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
";

/// For each line, a port: starts the workers, lets them go together, prints the seconds until the last
/// of them is done.
const CLIENTS: &str = "
import os, sys, time
import torch.distributed as dist
workers, keys = int(sys.argv[1]), int(sys.argv[2])

def work(port, rank, ready, go):
    store = dist.TCPStore('127.0.0.1', port, None, False)
    value = b'x' * 128
    os.write(ready, b'.')
    os.read(go, 1)
    for number in range(keys):
        key = f'{rank}/{number}'
        store.set(key, value)
        assert store.get(key) == value
    for number in range(keys):
        store.delete_key(f'{rank}/{number}')

print('imported', flush=True)
for line in sys.stdin:
    ready, told = os.pipe()
    waits, go = os.pipe()
    processes = []
    for rank in range(workers):
        process = os.fork()
        if process == 0:
            code = 1
            try:
                os.close(go)
                work(int(line), rank, told, waits)
                code = 0
            finally:
                os._exit(code)
        processes.append(process)
    os.close(told); os.close(waits)
    seen = 0
    while seen < workers:
        count = len(os.read(ready, workers))
        if count == 0: sys.exit('a worker did not connect')
        seen += count
    begin = time.monotonic()
    os.close(go)
    codes = [os.waitpid(process, 0)[1] for process in processes]
    seconds = time.monotonic() - begin
    os.close(ready)
    if any(codes): sys.exit(f'workers failed: {codes}')
    print(seconds, flush=True)
";

/// A process that is spoken to line by line, and ends when this does.
struct Helper {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Helper {
    fn start(command: &mut Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .with_context(|| format!("start {}", command.get_program().display()))?;
        let output = child.stdout.take().context("no output of a helper")?;
        let output = BufReader::new(output);
        Ok(Self { child, output })
    }

    fn python(script: &str, arguments: &[String]) -> Result<Self> {
        let python = std::env::var_os("HERD_LAB_TORCH_PYTHON");
        let python = python.context("set HERD_LAB_TORCH_PYTHON: eval \"$(lab/env)\"")?;
        Self::start(Command::new(python).args(["-c", script]).args(arguments))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(line.ends_with('\n'), "a helper ended too early");
        Ok(line.trim().to_owned())
    }

    fn say(&mut self, line: &str) -> Result<()> {
        let input = self.child.stdin.as_mut().context("no input of a helper")?;
        writeln!(input, "{line}").context("speak to a helper")
    }

    /// Its processor time so far, milliseconds, and its resident memory, MB.
    fn cost(&self) -> Result<(f64, f64)> {
        /// Of a second, for programs.
        const TICKS: f64 = 100.0;
        let directory = Path::new("/proc").join(self.child.id().to_string());
        let stat = fs::read_to_string(directory.join("stat"))?;
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let mut ticks = 0.0;
        // After the name, which ends in a bracket, `utime` and `stime` are the 12th and 13th.
        for field in fields.split_whitespace().skip(11).take(2) {
            ticks += field.parse::<f64>().context("read processor time")?;
        }
        let status = fs::read_to_string(directory.join("status"))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.and_then(|text| text.trim().strip_suffix(" kB"));
        let kib: f64 = resident.context("read memory")?.parse()?;
        Ok((ticks / TICKS * 1e3, kib * 1024.0 / 1e6))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// One of the two servers, and what was measured of it.
struct Measured {
    server: Helper,
    port: String,
    rate: Row,
    cpu: Row,
    memory: Row,
}

impl Measured {
    fn new(name: &str, mut server: Helper) -> Result<Self> {
        let row = |what: &str, unit| Row {
            what: format!("{name}, {what}"),
            unit,
            samples: Vec::new(),
        };
        Ok(Self {
            port: server.line()?,
            server,
            rate: row(
                &format!("{WORKERS} workers × {KEYS} × set and get"),
                "pairs/s",
            ),
            cpu: row("its processor time of a pair", "µs"),
            memory: row("its resident memory", "MB"),
        })
    }

    fn round(&mut self, clients: &mut Helper) -> Result<f64> {
        let (before, _) = self.server.cost()?;
        clients.say(&self.port)?;
        let seconds: f64 = clients.line()?.parse().context("read the time")?;
        let (after, memory) = self.server.cost()?;
        let pairs = f64::from(WORKERS * KEYS);
        self.rate.samples.push(pairs / seconds);
        self.cpu.samples.push((after - before) * 1e3 / pairs);
        self.memory.samples.push(memory);
        Ok(pairs / seconds)
    }
}

/// Both servers in turns, round by round.
pub(crate) fn run(rounds: usize) -> Result<String> {
    let own = std::env::current_exe().context("find this program")?;
    let ours = Helper::start(Command::new(own).arg("serve-store"))?;
    let mut ours = Measured::new("herd's store", ours)?;
    let peer = Helper::python(PEER, &[])?;
    let mut peer = Measured::new("peer: torch's own server", peer)?;
    let arguments = [WORKERS.to_string(), KEYS.to_string()];
    let mut clients = Helper::python(CLIENTS, &arguments)?;
    clients.line()?;
    let mut ratio = Row {
        what: "herd's rate by torch's in the same round".to_owned(),
        unit: "%",
        samples: Vec::new(),
    };
    for round in 0..rounds {
        // Whoever comes second finds a warmer machine, so they take turns.
        let rates = if round % 2 == 0 {
            let first = ours.round(&mut clients)?;
            (first, peer.round(&mut clients)?)
        } else {
            let first = peer.round(&mut clients)?;
            (ours.round(&mut clients)?, first)
        };
        ratio.samples.push(100.0 * rates.0 / rates.1);
    }
    Ok(markdown(&[
        ours.rate,
        peer.rate,
        ratio,
        ours.cpu,
        peer.cpu,
        ours.memory,
        peer.memory,
    ]))
}

/// Serves herd's store until it is killed; first prints the port.
pub(crate) fn serve() -> Result<()> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().context("make a runtime")?;
    runtime.block_on(async {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let mut server = Server::bind(&[loopback], 0, Options::default())?;
        let mut output = std::io::stdout();
        writeln!(output, "{}", server.port())?;
        output.flush()?;
        bail!("{}", server.notice().await)
    })
}
