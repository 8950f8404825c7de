//! The cluster that all tests share, and a laptop of its own for each.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use herd_testing::{Answer, Keeper, SlurmLab, within};
use serde_json::Value;
use tempfile::TempDir;

use crate::gate::Gate;

/// Bound on what a cluster does, on a machine that is loaded.
pub(crate) const DEADLINE: Duration = Duration::from_mins(3);

/// The cluster.
static LAB: OnceLock<Cluster> = OnceLock::new();

/// A cluster with a login node.
pub(crate) struct Cluster {
    pub(crate) lab: SlurmLab,
    /// Its `ssh` directory: keys, and who may log in.
    pub(crate) ssh: PathBuf,
    /// Its users' home, as this machine sees it.
    pub(crate) home: PathBuf,
    /// A directory that each node has for itself.
    pub(crate) scratch: PathBuf,
    address: String,
    /// Removes that directory, also when this process is killed.
    _keeper: Keeper,
}

impl Cluster {
    /// What lies in the nodes' own directories.
    pub(crate) fn on_nodes(&self) -> String {
        let path = self.scratch.to_str().unwrap();
        let list = |node| self.lab.slurm(&["node", "in", node, "ls", "-A", path]);
        ["1", "2", "3"].map(list).concat()
    }
}

pub(crate) fn cluster() -> &'static Cluster {
    LAB.get_or_init(|| {
        let scratch = tempfile::Builder::new().prefix("herd-scratch-").tempdir();
        let scratch = scratch.unwrap().keep();
        let keeper = Keeper::start("rm -rf \"$0\"", &[&scratch]);
        let lab = SlurmLab::up(&[
            "--home",
            "cluster",
            "--scratch",
            scratch.to_str().unwrap(),
            "--no-accounting",
            "--cpus",
            "64",
        ]);
        let login = lab.slurm(&["login"]);
        let config = login.split_whitespace().nth(2).unwrap();
        let ssh = Path::new(config).parent().unwrap().to_owned();
        let home = ssh.with_file_name("home");
        // What login scripts print is no answer.
        let noise = "echo Welcome; printf '{\"no\": \"line end\"}'; echo 'quota: fine' >&2\n";
        fs::write(home.join(".bashrc"), noise).unwrap();
        let text = fs::read_to_string(config).unwrap();
        let address = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("HostName "));
        Cluster {
            address: address.unwrap().to_owned(),
            lab,
            ssh,
            home,
            scratch,
            _keeper: keeper,
        }
    })
}

/// A machine outside of the cluster.
pub(crate) struct Laptop {
    pub(crate) cluster: &'static Cluster,
    pub(crate) dir: TempDir,
    pub(crate) gate: Gate,
}

impl Laptop {
    pub(crate) fn new() -> Self {
        let cluster = cluster();
        // Sockets lie below it, so its path is short.
        let dir = tempfile::Builder::new()
            .prefix("herd-host-")
            .tempdir_in("/tmp")
            .unwrap();
        let laptop = Self {
            cluster,
            gate: Gate::to(format!("{}:22", cluster.address).parse().unwrap()),
            dir,
        };
        for name in ["run", "bin", "work"] {
            fs::DirBuilder::new()
                .mode(0o700)
                .create(laptop.path(name))
                .unwrap();
        }
        symlink("/usr/bin/ssh", laptop.path("bin/ssh")).unwrap();
        laptop.ssh_config("");
        laptop.config("");
        laptop
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes the configuration of `ssh`; the first value of an option counts.
    pub(crate) fn ssh_config(&self, first: &str) {
        let ssh = self.cluster.ssh.display();
        let port = self.gate.port;
        let text = format!(
            "Host login1\n  {first}\n  HostName 127.0.0.1\n  Port {port}\n  User root\n  \
             IdentityFile {ssh}/user\n  IdentitiesOnly yes\n  HostKeyAlias login\n  \
             UserKnownHostsFile {ssh}/known\n  GlobalKnownHostsFile /dev/null\n  \
             StrictHostKeyChecking yes\n"
        );
        fs::write(self.path("ssh_config"), text).unwrap();
    }

    /// Writes herd's configuration.
    pub(crate) fn config(&self, more: &str) {
        let text = format!(
            "[backends.far]\nkind = \"slurm\"\nhost = \"login1\"\nssh_config = \"{}\"\n{more}\n",
            self.path("ssh_config").display()
        );
        fs::write(self.path("config.toml"), text).unwrap();
    }

    /// `herd` on this machine, in its directory `work`.
    pub(crate) fn herd(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_herd"));
        command
            .env_clear()
            .env("PATH", self.path("bin"))
            .env("HOME", self.dir.path())
            .env("HERD_HOME", self.path("home"))
            .env("HERD_CONFIG", self.path("config.toml"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .current_dir(self.path("work"))
            .stdin(Stdio::null())
            .args(args);
        command
    }

    /// Runs it.
    pub(crate) fn ask(&self, args: &[&str]) -> Answer {
        let output = self.herd(args).output().unwrap();
        output.into()
    }

    /// Runs it and reads its JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let answer = self.ask(&[args, &["-o", "json"]].concat());
        serde_json::from_str(&answer.out).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
    }

    /// Hands a job over; its id.
    pub(crate) fn submit(&self, args: &[&str]) -> String {
        let answer = self.ask(&[&["submit", "-b", "far"], args].concat());
        assert_eq!(answer.code, 0, "{answer:?}");
        answer.out.trim().to_owned()
    }

    pub(crate) fn state(&self, job: &str) -> String {
        self.json(&["status", job])["state"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    pub(crate) fn await_state(&self, job: &str, state: &str) {
        within(DEADLINE, state, || self.state(job) == state);
    }

    /// Makes a file in the directory of a job that waits for it, however long its network takes.
    pub(crate) fn touch_in(&self, job: &str, file: &str) {
        within(DEADLINE, "the job to be let go", || {
            // It may end before this command has.
            self.ask(&["exec", job, "--", "touch", file]).code == 0
                || ["SUCCEEDED", "FAILED"].contains(&self.state(job).as_str())
        });
    }

    /// The process that holds the connection.
    pub(crate) fn master(&self) -> i32 {
        let said = self.control("check");
        let number = said
            .split("pid=")
            .nth(1)
            .and_then(|rest| rest.split(')').next());
        number
            .unwrap_or_else(|| panic!("no connection: {said}"))
            .parse()
            .unwrap()
    }

    fn control(&self, what: &str) -> String {
        let sockets = fs::read_dir(self.path("run/herd"))
            .into_iter()
            .flatten()
            .flatten();
        let mut said = String::new();
        for socket in sockets {
            let output = Command::new("ssh")
                .arg("-F")
                .arg(self.path("ssh_config"))
                .arg("-o")
                .arg(format!("ControlPath={}", socket.path().display()))
                .args(["-O", what, "login1"])
                .output()
                .unwrap();
            said.push_str(&String::from_utf8_lossy(&output.stderr));
        }
        said
    }
}

impl Drop for Laptop {
    fn drop(&mut self) {
        self.gate.mend();
        // What a test that failed has left would keep nodes from the others.
        let active = self.ask(&["ls", "--state", "active", "-o", "id"]).out;
        for job in active.lines() {
            self.ask(&["cancel", "--grace", "0s", job]);
        }
        // The connection would wait for its next call.
        self.control("exit");
    }
}

/// A `herd` that runs, and the lines that it has shown.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) lines: BufReader<std::process::ChildStdout>,
    err: std::process::ChildStderr,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let err = child.stderr.take().unwrap();
        Self { child, lines, err }
    }

    /// The next line.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The rest of its output, its messages and its code.
    pub(crate) fn end(mut self) -> Answer {
        use std::io::Read as _;
        let (mut out, mut err) = (String::new(), String::new());
        self.lines.read_to_string(&mut out).unwrap();
        self.err.read_to_string(&mut err).unwrap();
        let status = self.child.wait().unwrap();
        Answer {
            code: status.code().unwrap_or(-1),
            out,
            err,
        }
    }
}
