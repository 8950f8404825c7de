//! A user of a cluster: a home of its own, jobs, and what can be seen of them from outside.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use herd_testing::{Answer, within};
use serde_json::Value;
use tempfile::TempDir;

use crate::lab::Lab;

/// Bound on what Slurm does when it is asked; a job starts after a second, a requeued one after ten.
pub(crate) const DEADLINE: Duration = Duration::from_mins(2);

/// A user with a home.
pub(crate) struct User<'a> {
    pub(crate) lab: &'a Lab,
    dir: TempDir,
    /// Directory that comes first on the `PATH` of its commands.
    bin: PathBuf,
}

impl<'a> User<'a> {
    pub(crate) fn new(lab: &'a Lab) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("herd-u-")
            .tempdir()
            .unwrap();
        let bin = dir.path().join("bin");
        fs::create_dir(&bin).unwrap();
        Self { lab, dir, bin }
    }

    /// One whose home is a directory that is there.
    pub(crate) fn at_home(lab: &'a Lab, home: &Path) -> Self {
        let user = Self::new(lab);
        std::os::unix::fs::symlink(home, user.path("home")).unwrap();
        user
    }

    /// A path in the user's directory, which all nodes see.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Whether a file is there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// Makes an empty file.
    pub(crate) fn touch(&self, name: &str) {
        fs::write(self.path(name), "").unwrap();
    }

    /// Waits for a file.
    pub(crate) fn await_file(&self, name: &str) {
        within(DEADLINE, name, || self.has(name));
    }

    /// A program of the user's own in place of one of Slurm's, for `herd` on this machine. `REAL` in
    /// the script stands for the one that it replaces.
    pub(crate) fn replace(&self, program: &str, script: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let real = self.lab.which(program);
        let script = script.replace("REAL", &real.to_string_lossy());
        let path = self.bin.join(program);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The real one again.
    pub(crate) fn put_back(&self, program: &str) {
        fs::remove_file(self.bin.join(program)).unwrap();
    }

    /// `herd` with this home.
    pub(crate) fn herd(&self, args: &[&str]) -> Command {
        let mut command = self.lab.command(env!("CARGO_BIN_EXE_herd"));
        let mut path = self.bin.clone().into_os_string();
        path.push(":");
        path.push(self.lab.search_path());
        command
            .args(args)
            .current_dir(self.dir.path())
            .env("HERD_HOME", self.dir.path().join("home"))
            .env("PATH", path)
            .env("TZ", "UTC")
            .stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub(crate) fn ask(&self, args: &[&str]) -> Answer {
        let output = assert_cmd::Command::from_std(self.herd(args))
            .timeout(2 * DEADLINE)
            .output()
            .unwrap();
        output.into()
    }

    /// Writes a job file; jobs leave room for others on their nodes.
    pub(crate) fn file(&self, name: &str, mut job: Value) -> String {
        job["backend"] = "slurm".into();
        if job["resources"]["memory"].is_null() {
            job["resources"]["memory"] = "64MiB".into();
        }
        // Login shells of the tester's may do anything.
        if job["env"]["HOME"].is_null() {
            job["env"]["HOME"] = self.dir.path().to_string_lossy().into();
        }
        // JSON is YAML.
        fs::write(self.path(name), job.to_string()).unwrap();
        self.path(name).to_string_lossy().into_owned()
    }

    /// Runs a job in the foreground.
    pub(crate) fn run(&self, job: Value) -> Answer {
        let file = self.file("job.yaml", job);
        self.ask(&["run", &file])
    }

    /// Submits a job.
    pub(crate) fn submit(&'a self, job: Value) -> Job<'a> {
        let file = self.file("job.yaml", job);
        let answer = self.ask(&["submit", &file]);
        assert_eq!(answer.code, 0, "{answer:?}");
        self.job(answer.out.trim())
    }

    /// A job by its id.
    pub(crate) fn job(&'a self, id: &str) -> Job<'a> {
        let id = id.to_owned();
        let dir = self.path("home/jobs").join(&id);
        assert!(dir.is_dir(), "{}", dir.display());
        Job {
            user: self,
            id,
            dir,
        }
    }

    /// The newest job.
    pub(crate) fn last(&'a self) -> Job<'a> {
        let mut names: Vec<String> = fs::read_dir(self.path("home/jobs"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        self.job(names.last().unwrap())
    }

    /// Starts `herd` with its output in files `out` and `err`.
    pub(crate) fn start(&self, args: &[&str]) -> Child {
        let file = |name| fs::File::create(self.path(name)).unwrap();
        self.herd(args)
            .stdout(file("out"))
            .stderr(file("err"))
            .spawn()
            .unwrap()
    }
}

/// A job.
pub(crate) struct Job<'a> {
    pub(crate) user: &'a User<'a>,
    pub(crate) id: String,
    pub(crate) dir: PathBuf,
}

impl Job<'_> {
    /// What `herd status` says.
    pub(crate) fn status(&self) -> Value {
        let answer = self.user.ask(&["status", &self.id, "-o", "json"]);
        assert_eq!(answer.code, 0, "{answer:?}");
        serde_json::from_str(&answer.out).unwrap()
    }

    pub(crate) fn state(&self) -> String {
        self.status()["state"].as_str().unwrap().to_owned()
    }

    pub(crate) fn await_state(&self, state: &str) {
        within(DEADLINE, state, || self.state() == state);
    }

    /// Waits for the end; the job's code.
    pub(crate) fn wait(&self) -> i32 {
        let answer = self.user.ask(&["wait", &self.id, "--timeout", "200s"]);
        assert!(
            !answer.err.contains("have not ended"),
            "{answer:?}\n{}",
            self.story()
        );
        answer.code
    }

    /// Waits for the end and holds that it is this one.
    #[track_caller]
    pub(crate) fn ends(&self, state: &str, code: i32) -> Value {
        let found = self.wait();
        let result = self.record("result.json");
        let story = || format!("{result}\n{}", self.story());
        assert_eq!(result["state"], state, "{}", story());
        assert_eq!(found, code, "{}", story());
        herd_testing::job::assert_one_end_each(&self.dir);
        result
    }

    /// A record in the job's directory; nothing for one that is not there or not whole.
    pub(crate) fn record(&self, name: &str) -> Value {
        let text = fs::read_to_string(self.dir.join(name)).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Slurm's number.
    pub(crate) fn number(&self) -> String {
        self.record("slurm.json")["job"].to_string()
    }

    /// What Slurm says of it.
    pub(crate) fn in_slurm(&self) -> String {
        self.user
            .lab
            .ask(&["scontrol", "show", "job", &self.number()])
    }

    /// The merged log.
    pub(crate) fn log(&self) -> String {
        let bytes = fs::read(self.dir.join("run.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// What there is to read of a job that ended otherwise.
    pub(crate) fn story(&self) -> String {
        let mut text = String::new();
        for file in files(&self.dir) {
            let name = file.to_string_lossy();
            if [".out", ".log", "/end", "events.jsonl"]
                .iter()
                .any(|end| name.ends_with(end))
            {
                let content = fs::read(&file).unwrap_or_default();
                let content = String::from_utf8_lossy(&content);
                text.extend(["== ", &*name, "\n", &*content]);
            }
        }
        text
    }

    /// Processes of the job on any node: those that have its id in their environment or arguments.
    pub(crate) fn processes(&self) -> Vec<i32> {
        herd_testing::process::with_text(&self.id)
    }

    /// Waits until none is left (I5).
    #[track_caller]
    pub(crate) fn gone_within(&self, bound: Duration) {
        within(bound, "the end of all processes", || {
            let left = self.processes();
            left.is_empty()
        });
    }

    /// The same for a job that has ended: the bound of I5 on a machine that is loaded.
    #[track_caller]
    pub(crate) fn gone(&self) {
        self.gone_within(Duration::from_secs(30));
        let steps = ["squeue", "--noheader", "--steps", "--format=%i", "--jobs"];
        let number = self.number();
        within(DEADLINE, "the end of all steps", || {
            let words = [&steps[..], &[number.as_str()]].concat();
            self.user.lab.ask(&words).trim().is_empty()
        });
    }

    /// The processes that the job's driver consists of on its node: the guard and its child.
    pub(crate) fn drivers(&self) -> Vec<i32> {
        let mut found = self.processes();
        found.retain(|pid| {
            let (argv, _) = herd_testing::process::arguments_and_environment(*pid);
            let words: Vec<&[u8]> = argv.split(|byte| *byte == 0).collect();
            words.contains(&&b"--slurm"[..])
        });
        found
    }
}

/// All files below a directory.
pub(crate) fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}
