//! `herd executor` with SkyPilot's flags, under a driver that does what SkyPilot's generated one does, on
//! a real Slurm whose tasks' processes end with the first one (`proctrack/cgroup`). Numbers are rows of
//! the task executor's acceptance table.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use herd_testing::{SlurmLab, within};
use tempfile::TempDir;

/// Bound on anything one job does, on a machine that is loaded.
const DEADLINE: Duration = Duration::from_mins(3);
/// As SkyPilot's driver goes about it: the run's step first, setup beside it, signal files, states.
const DRIVER: &str = include_str!("compat_executor/driver.sh");

fn cluster() -> &'static SlurmLab {
    static CLUSTER: OnceLock<SlurmLab> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        SlurmLab::up(&[
            "--no-accounting",
            "--proctrack",
            "cgroup",
            "--nodes",
            "3",
            "--cpus",
            "64",
        ])
    })
}

/// An allocation with a shared home, which runs jobs one after the other or side by side.
struct Allocation {
    home: TempDir,
    job: String,
    nodes: u32,
    ips: Vec<String>,
}

impl Allocation {
    fn new(nodes: u32) -> Self {
        let home = tempfile::Builder::new()
            .prefix("herd-sky-")
            .tempdir()
            .unwrap();
        let count = format!("--nodes={nodes}");
        let words = [
            "sbatch",
            "--parsable",
            &count,
            "--ntasks-per-node=4",
            "--mem=400",
            "--output=/dev/null",
            "--wrap=sleep 900",
        ];
        let job = cluster().ask(&words).trim().to_owned();
        let mut list = String::new();
        within(DEADLINE, "the allocation", || {
            list = cluster().ask(&["squeue", "-h", "-j", &job, "-t", "R", "-o", "%N"]);
            !list.trim().is_empty()
        });
        let names = cluster().ask(&["scontrol", "show", "hostnames", list.trim()]);
        // Their names mean something on the machines of the lab only.
        let ips = names.lines().map(|name| {
            let found = cluster().slurm(&["node", "in", name, "getent", "ahostsv4", name]);
            found.split_whitespace().next().unwrap().to_owned()
        });
        Self {
            nodes,
            ips: ips.collect(),
            job,
            home,
        }
    }

    fn job<'a>(&'a self, number: u32, script: &str) -> Job<'a> {
        Job {
            allocation: self,
            number,
            nodes: self.nodes,
            script: script.to_owned(),
            script_path: None,
            setup: None,
            node_list: None,
            ips: self.ips.join(","),
            variables: "{}".to_owned(),
        }
    }

    fn log(&self, number: u32, name: &str) -> String {
        fs::read_to_string(self.logs(number).join(name)).unwrap_or_default()
    }

    fn logs(&self, number: u32) -> PathBuf {
        self.home.path().join(format!("sky_logs/{number}"))
    }

    fn state(&self, number: u32) -> String {
        let states = fs::read_to_string(self.home.path().join(format!("state-{number}")));
        let states = states.unwrap_or_default();
        states.lines().last().unwrap_or_default().to_owned()
    }

    /// Row 26: what is in the home that a job of SkyPilot has put there.
    fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(self.home.path()).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names
            .filter(|name| name.starts_with(".sky_") && name != ".sky_proctrack_type")
            .collect()
    }

    fn steps(&self) -> String {
        cluster().ask(&["squeue", "-s", "-h", "-j", &self.job, "-o", "%j"])
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        cluster().ask(&["scancel", &self.job]);
    }
}

/// One job of an allocation.
struct Job<'a> {
    allocation: &'a Allocation,
    number: u32,
    nodes: u32,
    script: String,
    script_path: Option<String>,
    setup: Option<String>,
    node_list: Option<String>,
    ips: String,
    variables: String,
}

impl Job<'_> {
    fn start(&self) -> Child {
        let home = self.allocation.home.path();
        let optional = |value: &Option<String>| value.clone().unwrap_or_default();
        cluster()
            .command("bash")
            .args(["-c", DRIVER])
            .env("HERD", env!("CARGO_BIN_EXE_herd"))
            .env("HOME", home)
            .env("JOB", &self.allocation.job)
            .env("NUMBER", self.number.to_string())
            .env("NODES", self.nodes.to_string())
            .env("NODE_LIST", optional(&self.node_list))
            .env("CLUSTER_NODES", self.allocation.nodes.to_string())
            .env("IPS", &self.ips)
            .env("VARIABLES", &self.variables)
            .env("SCRIPT", &self.script)
            .env("SCRIPT_PATH", optional(&self.script_path))
            .env("SETUP", optional(&self.setup))
            // The step that SkyPilot's driver runs in leaves these behind (row 8).
            .env("SLURM_CPU_BIND", "quiet,mask_cpu:0x8000000000000000")
            .env("SLURM_NNODES", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Runs it to its end: the state that the driver has given it, and what was streamed.
    fn run(&self) -> (String, String) {
        let output = finished(self.start());
        let streamed = String::from_utf8(output.stdout).unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        (self.allocation.state(self.number), streamed + &err)
    }
}

fn finished(mut child: Child) -> Output {
    let readers = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = |mut from: Box<dyn std::io::Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            from.read_to_end(&mut bytes).unwrap();
            bytes
        })
    };
    let (out, err) = (read(Box::new(readers.0)), read(Box::new(readers.1)));
    within(DEADLINE, "the end of the driver", || {
        child.try_wait().unwrap().is_some()
    });
    Output {
        status: child.wait().unwrap(),
        stdout: out.join().unwrap(),
        stderr: err.join().unwrap(),
    }
}

#[test]
fn row_1_an_executor_without_a_script_names_the_arguments() {
    let output = cluster()
        .command("srun")
        .arg("--ntasks=1")
        .arg(env!("CARGO_BIN_EXE_herd"))
        .args([
            "executor",
            "--log-dir=/tmp",
            "--cluster-num-nodes=1",
            "--cluster-ips=10.0.0.1",
        ])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        err.contains("--script") && err.contains("--script-path"),
        "{err}"
    );
}

#[test]
fn rows_2_5_9_10_11_18_26_a_job_on_two_nodes_with_setup() {
    let allocation = Allocation::new(2);
    let mut job = allocation.job(1, "echo \"run $SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES at $(date +%s%N)\"; \
         printf '%s\\n' \"$SKYPILOT_NODE_IPS\" | sed 's/^/address /'; printf '<%s>' \"$WORDS\"; echo");
    job.setup = Some("sleep 2; echo \"ready $(date +%s%N)\"".to_owned());
    job.variables =
        r#"{"WORDS": "it's \"a\"\n$HOME `x` \\", "SLURM_PROCID": "9", "SKYPILOT_NODE_RANK": "9"}"#
            .to_owned();
    let (state, streamed) = job.run();
    assert_eq!(state, "SUCCEEDED", "{streamed}");
    let (head, worker) = (
        allocation.log(1, "0-head.log"),
        allocation.log(1, "1-worker1.log"),
    );
    assert!(
        head.starts_with("run 0 of 2 at ") && worker.starts_with("run 1 of 2 at "),
        "{head}{worker}"
    );
    let expected = format!(
        "address {}\naddress {}\n",
        allocation.ips[0], allocation.ips[1]
    );
    for log in [&head, &worker] {
        assert!(log.contains(&expected), "{log}");
        assert!(log.contains("<it's \"a\"\n$HOME `x` \\>"), "{log}");
        assert!(!log.contains('\u{1b}'));
    }
    let time = |log: &str| -> u64 {
        log.lines()
            .next()
            .unwrap()
            .rsplit(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap()
    };
    for name in ["setup-head.log", "setup-worker1.log"] {
        let ready = time(&allocation.log(1, name));
        assert!(ready < time(&head) && ready < time(&worker));
    }
    let worker_ip = &allocation.ips[1];
    assert!(
        streamed.contains("\u{1b}[36m(head, rank=0, pid="),
        "{streamed}"
    );
    assert!(
        streamed.contains(&format!(", ip={worker_ip})\u{1b}[0m run 1 of 2")),
        "{streamed}"
    );
    assert!(streamed.contains("\u{1b}[36m(setup pid="), "{streamed}");
    assert_eq!(allocation.left(), Vec::<String>::new());
    // Where processes outlive their task there is no barrier to leave a directory.
    fs::write(
        allocation.home.path().join(".sky_proctrack_type"),
        "linuxproc\n",
    )
    .unwrap();
    let watch = allocation.job(2, "sleep 1; ls -a ~ | grep run_done; true");
    assert_eq!(watch.run().0, "SUCCEEDED");
    assert_eq!(allocation.log(2, "0-head.log"), "");
}

#[test]
fn rows_3_and_4_logs_are_named_by_the_node_and_never_fatally() {
    let allocation = Allocation::new(2);
    let mut second = allocation.job(1, "echo here");
    second.nodes = 1;
    let names = cluster().ask(&["squeue", "-h", "-j", &allocation.job, "-o", "%N"]);
    let names = cluster().ask(&["scontrol", "show", "hostnames", names.trim()]);
    second.node_list = names.lines().nth(1).map(str::to_owned);
    let (state, streamed) = second.run();
    assert_eq!(state, "SUCCEEDED", "{streamed}");
    assert_eq!(allocation.log(1, "0-worker1.log"), "here\n");
    let mut foreign = allocation.job(2, "echo here");
    foreign.ips = "203.0.113.1,203.0.113.2".to_owned();
    foreign.setup = Some("echo set up".to_owned());
    let (state, streamed) = foreign.run();
    assert_eq!(state, "SUCCEEDED", "{streamed}");
    assert!(streamed.contains("203.0.113.1, 203.0.113.2"), "{streamed}");
    for name in ["0-head.log", "1-worker1.log"] {
        assert_eq!(allocation.log(2, name), "here\n", "{name}");
    }
    for name in ["setup-head.log", "setup-worker1.log"] {
        assert_eq!(allocation.log(2, name), "set up\n", "{name}");
    }
}

#[test]
fn rows_6_and_7_the_script_sees_the_allocation_and_not_the_step() {
    let allocation = Allocation::new(2);
    let job = allocation.job(
        1,
        "env | grep ^SLURM_ | cut -d= -f1 | sort; [ $SKYPILOT_NODE_RANK = 1 ] || \
         srun --overlap --jobid=$SLURM_JOB_ID --nodes=2 --ntasks=8 --mem=0 echo inner",
    );
    let (state, streamed) = job.run();
    assert_eq!(state, "SUCCEEDED", "{streamed}");
    let log = allocation.log(1, "0-head.log");
    assert_eq!(log.matches("inner").count(), 8, "{log}");
    for name in [
        "SLURM_JOB_ID",
        "SLURM_JOB_NODELIST",
        "SLURM_NNODES",
        "SLURM_CONF",
    ] {
        assert!(log.lines().any(|line| line == name), "{name} in {log}");
    }
    for name in [
        "SLURM_STEP_",
        "SLURM_CPU_BIND",
        "SLURM_MEM_BIND",
        "SLURM_PROCID",
        "SLURM_NTASKS",
        "SLURM_STEPID",
    ] {
        assert!(
            !log.lines().any(|line| line.starts_with(name)),
            "{name} in {log}"
        );
    }
}

#[test]
fn rows_12_14_21_26_failures_have_their_codes_and_leave_nothing() {
    let allocation = Allocation::new(3);
    let mut setup = allocation.job(1, "echo never");
    // One of the nodes, while the other would go on.
    setup.setup = Some("[ \"$(hostname)\" = node1 ] && exit 3; sleep 100".to_owned());
    let (state, streamed) = setup.run();
    assert_eq!(state, "FAILED_SETUP", "{streamed}");
    assert!(
        !allocation.logs(1).join("0-head.log").exists()
            || allocation.log(1, "0-head.log").is_empty()
    );
    assert_eq!(allocation.left(), Vec::<String>::new());
    for (number, failing, end, code) in [
        (2, 1, "exit 5", 5),
        (3, 2, "exit 139", 139),
        (4, 0, "kill -9 $$", 137),
        (5, 0, "exit 7", 7),
    ] {
        // `srun` ends the other tasks then, and a task whose executor is not there yet dies of that: with a code of
        // its own, and the highest one counts.
        let script = format!(
            "touch ~/up-{number}-$SKYPILOT_NODE_RANK; [ $SKYPILOT_NODE_RANK = {failing} ] || sleep 100\n\
             until [ -e ~/up-{number}-0 ] && [ -e ~/up-{number}-1 ] && [ -e ~/up-{number}-2 ]; do sleep 0.1; done; {end}"
        );
        let (state, streamed) = allocation.job(number, &script).run();
        assert_eq!(state, format!("FAILED {code}"), "{script}: {streamed}");
        assert_eq!(allocation.left(), Vec::<String>::new(), "{script}");
    }
    within(DEADLINE, "the end of all steps", || {
        !allocation.steps().contains("sky-")
    });
}

#[test]
fn row_13_a_step_that_is_refused_fails_at_once() {
    let allocation = Allocation::new(1);
    let mut job = allocation.job(1, "echo never");
    job.nodes = 2;
    let (state, streamed) = job.run();
    assert_eq!(state, "FAILED_SETUP", "{streamed}");
}

#[test]
fn row_15_what_a_node_has_left_running_serves_the_others_to_their_end() {
    let allocation = Allocation::new(2);
    let script = "if [ $SKYPILOT_NODE_RANK = 1 ]; then \
           nohup sh -c 'while sleep 0.1; do date +%s%N > ~/beat; done' >/dev/null 2>&1 & exit 0; \
         fi; sleep 5; a=$(cat ~/beat); for i in $(seq 600); do [ \"$(cat ~/beat)\" != \"$a\" ] && exit 0; sleep 0.1; done; exit 4";
    let (state, streamed) = allocation.job(1, script).run();
    assert_eq!(state, "SUCCEEDED", "{streamed}");
    assert_eq!(allocation.left(), Vec::<String>::new());
}

#[test]
fn rows_19_and_26_a_cancelled_job_leaves_neither_processes_nor_files() {
    let allocation = Allocation::new(2);
    let mut in_setup = allocation.job(1, "echo never");
    in_setup.setup = Some("echo begun; sleep 300".to_owned());
    cancel(&allocation, &in_setup, "setup-head.log");
    let running = allocation.job(2, "echo begun; sleep 300");
    cancel(&allocation, &running, "0-head.log");
}

fn cancel(allocation: &Allocation, job: &Job<'_>, log: &str) {
    let driver = job.start();
    within(DEADLINE, "a first line of each node", || {
        let other = log
            .replace("0-head", "1-worker1")
            .replace("setup-head", "setup-worker1");
        allocation.log(job.number, log).contains("begun")
            && allocation.log(job.number, &other).contains("begun")
    });
    if log == "0-head.log" {
        within(DEADLINE, "the end of the signal files", || {
            allocation.left().is_empty()
        });
    }
    Command::new("kill")
        .arg(driver.id().to_string())
        .status()
        .unwrap();
    let output = finished(driver);
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(allocation.state(job.number), "CANCELLED", "{err}");
    within(DEADLINE, "the end of all steps", || {
        !allocation.steps().contains("sky-")
    });
    let left = allocation.left();
    assert!(
        left.iter().all(|name| name.starts_with(".sky_run_done")),
        "{left:?}"
    );
}

#[test]
fn row_20_a_long_script_that_one_node_alone_has_runs_on_all() {
    let allocation = Allocation::new(2);
    let names = cluster().ask(&["squeue", "-h", "-j", &allocation.job, "-o", "%N"]);
    let first = cluster().ask(&["scontrol", "show", "hostnames", names.trim()]);
    let first = first.lines().next().unwrap();
    let long = allocation.home.path().join("long.sh");
    fs::write(
        &long,
        format!(
            "# {}\necho \"ran $SKYPILOT_NODE_RANK\"\n",
            "x".repeat(200_000)
        ),
    )
    .unwrap();
    // A directory that each node has for itself.
    let own = format!("/dev/shm/sky_task_{}.sh", allocation.job);
    cluster().slurm(&["node", "in", first, "cp", &long.to_string_lossy(), &own]);
    assert!(!Path::new(&own).exists());
    let mut job = allocation.job(1, "");
    job.script_path = Some(own);
    let (state, streamed) = job.run();
    assert_eq!(state, "SUCCEEDED", "{streamed}");
    assert_eq!(allocation.log(1, "0-head.log"), "ran 0\n");
    assert_eq!(allocation.log(1, "1-worker1.log"), "ran 1\n");
    let left: Vec<_> = fs::read_dir(allocation.home.path())
        .unwrap()
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().starts_with(".sky_")),
        "{left:?}"
    );
}

#[test]
fn row_23_lines_are_shown_when_they_are_written() {
    let allocation = Allocation::new(1);
    let job = allocation.job(
        1,
        "printf '10%%\\r20%%\\r'; printf 'bad \\377\\n'; while [ ! -e ~/go ]; do sleep 0.1; done",
    );
    let driver = job.start();
    within(DEADLINE, "the first lines", || {
        allocation.log(1, "run.log") == "10%\n20%\nbad \u{fffd}\n"
    });
    fs::write(allocation.home.path().join("go"), "").unwrap();
    let output = finished(driver);
    let streamed = String::from_utf8(output.stdout).unwrap();
    assert!(streamed.contains("\u{1b}[36m(task, pid="), "{streamed}");
    assert_eq!(streamed.matches("pid=").count(), 3, "{streamed}");
    assert_eq!(allocation.state(1), "SUCCEEDED");
}
