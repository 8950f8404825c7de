//! A cluster whose nodes have a disk of their own, and a user on the submitting side.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use herd_testing::{Answer, Keeper, SlurmLab, within};
use serde_json::Value;
use tempfile::TempDir;

/// Bound on what a cluster does, on a machine that is loaded.
pub(crate) const DEADLINE: Duration = Duration::from_mins(3);

/// A cluster whose nodes share nothing below a directory, with each other or with this side.
pub(crate) struct Cluster {
    pub(crate) lab: SlurmLab,
    nodes: u32,
    apart: PathBuf,
    /// Removes the directory, also when this process is killed.
    _keeper: Keeper,
}

impl Cluster {
    /// The cluster that tests share; it ends with this process.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| Self::up(6, &[]))
    }

    /// Brings one up with these options of `lab/slurm up` besides.
    pub(crate) fn up(nodes: u32, options: &[&str]) -> Self {
        let apart = tempfile::Builder::new().prefix("herd-apart-").tempdir();
        let apart = apart.unwrap().keep();
        let keeper = Keeper::start("rm -rf \"$0\"", &[&apart]);
        let path = apart.to_str().unwrap();
        // Slurm starts a login shell for each job, and the tester's may do anything.
        let count = nodes.to_string();
        let fixed = [
            "--home",
            "local",
            "--scratch",
            path,
            "--no-accounting",
            "--nodes",
            &count,
        ];
        Self {
            lab: SlurmLab::up(&[&fixed, options].concat()),
            nodes,
            apart,
            _keeper: keeper,
        }
    }

    /// What lies in the nodes' own directory, on any of them.
    fn on_nodes(&self) -> String {
        let path = self.apart.to_str().unwrap();
        let list = |node: u32| {
            self.lab
                .slurm(&["node", "in", &node.to_string(), "ls", "-A", path])
        };
        (1..=self.nodes).map(list).collect()
    }
}

/// A directory that all nodes and this side see, for jobs that wait for a file: the lab's nodes have one `/tmp`.
pub(crate) fn seen_by_all() -> TempDir {
    let builder = &mut tempfile::Builder::new();
    builder.prefix("herd-shared-").tempdir().unwrap()
}

/// A user with a home that no node sees.
pub(crate) struct User<'a> {
    pub(crate) cluster: &'a Cluster,
    dir: TempDir,
}

impl<'a> User<'a> {
    pub(crate) fn of(cluster: &'a Cluster) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("u-")
            .tempdir_in(&cluster.apart);
        let user = Self {
            cluster,
            dir: dir.unwrap(),
        };
        let node_dir = cluster.apart.display();
        user.configure(&format!("shared_home = false\nnode_dir = \"{node_dir}\"\n"));
        user
    }

    /// One whose home the nodes do see.
    pub(crate) fn sharing(cluster: &'a Cluster) -> Self {
        let dir = tempfile::Builder::new().prefix("herd-u-").tempdir();
        let user = Self {
            cluster,
            dir: dir.unwrap(),
        };
        user.configure("");
        user
    }

    /// What the configuration says of the cluster.
    pub(crate) fn configure(&self, lines: &str) {
        let text = format!("[backends.apart]\nkind = \"slurm\"\n{lines}");
        fs::write(self.path("config.toml"), text).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `herd` with this home.
    pub(crate) fn herd(&self, args: &[&str]) -> Command {
        let mut command = self.cluster.lab.command(env!("CARGO_BIN_EXE_herd"));
        command
            .args(args)
            .current_dir(self.dir.path())
            .env("HERD_HOME", self.path("home"))
            .env("HERD_CONFIG", self.path("config.toml"))
            .stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub(crate) fn ask(&self, args: &[&str]) -> Answer {
        let output = assert_cmd::Command::from_std(self.herd(args))
            .timeout(2 * DEADLINE)
            .output();
        let output = output.unwrap();
        output.into()
    }

    /// Writes a job file.
    pub(crate) fn file(&self, mut job: Value) -> String {
        job["backend"] = "apart".into();
        job["resources"]["memory"] = "64MiB".into();
        let path = self.path("job.yaml");
        // JSON is YAML.
        fs::write(&path, job.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Hands a job over.
    pub(crate) fn submit(&'a self, job: Value) -> Job<'a> {
        let answer = self.ask(&["submit", &self.file(job)]);
        assert_eq!(answer.code, 0, "{answer:?}");
        let id = answer.out.trim().to_owned();
        let dir = self.path("home/jobs").join(&id);
        Job {
            user: self,
            id,
            dir,
        }
    }
}

/// A job.
pub(crate) struct Job<'a> {
    pub(crate) user: &'a User<'a>,
    pub(crate) id: String,
    pub(crate) dir: PathBuf,
}

impl Job<'_> {
    pub(crate) fn text(&self, name: &str) -> String {
        let bytes = fs::read(self.dir.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(crate) fn record(&self, name: &str) -> Value {
        serde_json::from_str(&self.text(name)).unwrap_or_default()
    }

    pub(crate) fn number(&self) -> String {
        self.record("slurm.json")["job"].to_string()
    }

    /// Waits until the merged log here holds a text.
    pub(crate) fn says(&self, text: &str) {
        within(DEADLINE, text, || self.text("run.log").contains(text));
    }

    /// Waits for the end and holds that it is this one.
    #[track_caller]
    pub(crate) fn ends(&self, state: &str, code: i32) -> Value {
        let found = self.user.ask(&["wait", &self.id, "--timeout", "200s"]);
        let result = self.record("result.json");
        let story = || {
            ["run.log", "stage.log", "slurm.out", "attempts/1/end"]
                .map(|name| format!("== {name}\n{}", self.text(name)))
                .concat()
        };
        assert_eq!(result["state"], state, "{found:?}\n{result}\n{}", story());
        assert_eq!(found.code, code, "{found:?}\n{}", story());
        herd_testing::job::assert_one_end_each(&self.dir);
        result
    }

    /// Waits until nothing of the job is left on any node or here: directories, processes, steps.
    pub(crate) fn leaves_nothing(&self) {
        let directory = self.record("slurm.json")["staged_to"]
            .as_str()
            .unwrap()
            .to_owned();
        let name = Path::new(&directory)
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let on_nodes = || self.user.cluster.on_nodes();
        within(DEADLINE, "clean nodes", || !on_nodes().contains(&name));
        self.ends_all_processes();
    }

    /// Waits until no process of the job is left on any node or here.
    pub(crate) fn ends_all_processes(&self) {
        within(DEADLINE, "the end of all processes", || {
            herd_testing::process::with_text(&self.id).is_empty()
        });
    }
}
