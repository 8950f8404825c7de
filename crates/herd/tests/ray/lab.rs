//! A network namespace with a real Ray in it, and looking at what a job started.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use herd_launch::{Pid, tree};

use crate::live::{Herd, alive, pid_of};

/// Bound on what Ray does; a cluster of two takes 15 s on a machine that is not loaded.
pub(crate) const RAY_DEADLINE: Duration = Duration::from_mins(5);

/// A cluster needs more than a gigabyte of memory and both processors.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A network namespace of its own; nothing in it reaches another network.
pub(crate) struct Network {
    holder: Child,
    bin: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

impl Network {
    pub(crate) fn new() -> Self {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let python = std::env::var_os("HERD_LAB_RAY_PYTHON")
            .expect("HERD_LAB_RAY_PYTHON is not set: run lab/ray, then eval \"$(lab/env)\"");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/netns");
        let mut holder = Command::new(script)
            .args(["sh", "-c", "echo up; exec sleep 30000"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut up = [0; 3];
        let mut stdout = holder.stdout.take().unwrap();
        stdout
            .read_exact(&mut up)
            .expect("lab/netns makes a network namespace, for which it needs root");
        let bin = PathBuf::from(python).parent().unwrap().to_owned();
        Self {
            holder,
            bin,
            _turn: turn,
        }
    }

    /// A program in the namespace, with Ray's programs first on its PATH; its process id is the
    /// program's.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .arg(format!("--net=/proc/{}/ns/net", self.holder.id()))
            .arg("--")
            .arg(program)
            .env("PATH", format!("{}:{path}", self.bin.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// `herd ARGS` in the namespace.
    pub(crate) fn herd(&self, herd: &Herd, args: &[&str]) -> Child {
        let plain = herd.command(args);
        let mut command = self.command(plain.get_program());
        herd_testing::surroundings::copy(&plain, &mut command);
        command
            .args(plain.get_args())
            .env("PASSPHRASE", crate::PASSPHRASE)
            // What the caller has of another cluster means nothing to a job.
            .env("RAY_ADDRESS", "10.98.0.2:1")
            .current_dir(plain.get_current_dir().unwrap());
        command.spawn().unwrap()
    }

    /// Runs Python text to its end.
    pub(crate) fn python(&self, text: &str, variables: &[(&str, &str)]) -> Output {
        self.command("python3")
            .args(["-c", text])
            .envs(variables.iter().copied())
            .output()
            .unwrap()
    }
}

/// A job's `herd run`, killed where a test fails before its end; its guard being gone ends the rest.
pub(crate) struct Run(pub(crate) Child);

impl Run {
    pub(crate) fn pid(&self) -> i32 {
        pid_of(&self.0)
    }

    /// Waits for its end; what it printed.
    pub(crate) fn output(mut self) -> Output {
        let read = |pipe: Option<&mut dyn Read>| {
            let mut bytes = Vec::new();
            pipe.unwrap().read_to_end(&mut bytes).unwrap();
            bytes
        };
        // What the tests print fits into a pipe.
        let status = self.0.wait().unwrap();
        Output {
            status,
            stdout: read(self.0.stdout.as_mut().map(|pipe| pipe as &mut dyn Read)),
            stderr: read(self.0.stderr.as_mut().map(|pipe| pipe as &mut dyn Read)),
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A Ray that is not herd's, ended with all it started when dropped.
pub(crate) struct Foreign(Child);

impl Foreign {
    pub(crate) fn start(network: &Network, herd: &Herd) -> Self {
        let log = herd.path("foreign.log");
        let child = network
            .command("ray")
            .args(["start", "--head", "--block", "--num-cpus=1"])
            .args(["--include-dashboard=false", "--disable-usage-stats"])
            .args([
                "--node-ip-address=10.98.0.1",
                "--object-store-memory=80000000",
            ])
            .arg(format!("--temp-dir={}", herd.path("foreign").display()))
            .env("RAY_AUTH_MODE", "disabled")
            .stdout(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let foreign = Self(child);
        ray_does("a foreign Ray", || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            text.contains("Ray runtime started")
        });
        foreign
    }

    pub(crate) fn pid(&self) -> i32 {
        pid_of(&self.0)
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let all = processes(pid_of(&self.0));
        for &(pid, start) in &all {
            if started(pid) == Some(start) {
                crate::live::signal(pid, "-KILL");
            }
        }
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        drop(self.holder.kill());
        drop(self.holder.wait());
    }
}

/// A job of type `ray` over `nodes` nodes whose entry point is Python text.
pub(crate) fn job(herd: &Herd, name: &str, nodes: u32, python: &str) -> PathBuf {
    let script = herd.file(&format!("{name}.py"), python);
    let text = format!(
        "name: {name}\ntype: ray\nnodes: {nodes}\nresources: {{cpus: 1}}\n\
         env: {{TEST_MARK: \"{}\"}}\nsecrets: {{PASSPHRASE: {{env: PASSPHRASE}}}}\n\
         run: [python3, \"{}\"]\n",
        mark(herd),
        script.display()
    );
    herd.file(&format!("{name}.yaml"), &text)
}

/// What every process of a test's jobs has in its environment.
fn mark(herd: &Herd) -> String {
    herd.path("mark").display().to_string()
}

/// The processes of a running job, with their start times: a number alone may be used again.
pub(crate) fn processes(root: i32) -> BTreeSet<(i32, u64)> {
    let root = Pid::from_raw(root).unwrap();
    tree::descendants(root)
        .into_iter()
        .map(|pid| pid.as_raw_nonzero().get())
        .filter_map(|pid| Some((pid, started(pid)?)))
        .collect()
}

/// Which of these live, and which others of the test's jobs.
pub(crate) fn left(herd: &Herd, before: &BTreeSet<(i32, u64)>) -> Vec<String> {
    let mark = format!("TEST_MARK={}", mark(herd));
    let marked = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|&pid| tree::environ_has(Pid::from_raw(pid).unwrap(), &mark));
    before
        .iter()
        .filter(|&&(pid, start)| started(pid) == Some(start))
        .map(|&(pid, _)| pid)
        .chain(marked)
        .filter(|&pid| alive(pid))
        .map(|pid| format!("{pid} {}", command_line(pid)))
        .collect()
}

/// Waits until none of a job's processes lives, and says which do otherwise.
#[track_caller]
pub(crate) fn all_gone(herd: &Herd, before: &BTreeSet<(i32, u64)>) {
    assert!(before.len() > 10, "no cluster was running: {before:?}");
    let deadline = Instant::now() + Duration::from_secs(50);
    loop {
        let left = left(herd, before);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "still there: {left:#?}");
        std::thread::park_timeout(Duration::from_millis(200));
    }
}

/// Waits for a condition on which Ray works.
#[track_caller]
pub(crate) fn ray_does(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + RAY_DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not come true");
        std::thread::park_timeout(Duration::from_millis(200));
    }
}

pub(crate) fn command_line(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// The value of a variable that a process was started with.
pub(crate) fn variable(pid: i32, name: &str) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let entry = text
        .split('\0')
        .find_map(|entry| entry.strip_prefix(&format!("{name}=")));
    entry.map(str::to_owned)
}

/// Directories that the Ray of this test's only job made.
pub(crate) fn ray_directories(herd: &Herd) -> Vec<PathBuf> {
    let jobs = fs::read_dir(herd.path("home/jobs")).unwrap();
    let ids: Vec<String> = jobs
        .map(|job| job.unwrap().file_name().into_string().unwrap())
        .collect();
    let short = |id: &String| id[id.len() - 8..].to_owned();
    let found = fs::read_dir(std::env::temp_dir()).unwrap();
    found
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            ids.iter()
                .any(|id| name.starts_with(&format!("herd-ray-{}", short(id))))
        })
        .collect()
}

fn started(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit(')').next()?.split_whitespace().collect();
    fields.get(19)?.parse().ok()
}
