//! The processes that are a driver's executors, or that start them on other machines: started, watched
//! and, at the end, gone.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use herd_launch::cgroup::Cgroup;
use herd_launch::{Group, Output, Pid, ProcessSpec, Signal, SpawnError, Stdin, spawn, tree};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::clock::until;
use crate::last_resort::GRACE;

/// Bound on ending orphans, killing included.
const ORPHAN_BOUND: Duration = Duration::from_secs(5);

/// How one executor is started, or those of all nodes by one program.
pub(crate) struct Launch {
    /// What it is for, in messages.
    pub(crate) name: String,
    pub(crate) argv: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    /// Where its own messages go.
    pub(crate) log: PathBuf,
    pub(crate) pass_stdin: bool,
    /// The group with its memory limit, where the job has one.
    pub(crate) cgroup: Option<Cgroup>,
}

/// Whose process has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ended {
    /// The executor of a node, by index.
    Node(usize),
    /// What had started those of all nodes.
    All,
}

pub(crate) struct Executors {
    group: Group,
    /// One program started the executors of all nodes.
    one_for_all: bool,
    /// Pid of each that lives, by node index, which is the group's index too.
    alive: BTreeMap<usize, u32>,
    /// When those that were given up are killed, by node index.
    kill_at: BTreeMap<usize, Instant>,
    /// Removed after the last process has ended.
    cgroups: Vec<Cgroup>,
    /// Ends of orphans that are under way; each has its own bound.
    sweeps: JoinSet<()>,
}

impl Executors {
    /// Starts those of nodes, in their order; when one cannot start, those before it are killed with
    /// the group.
    pub(crate) fn start_each(launches: Vec<Launch>) -> Result<Self, (String, SpawnError)> {
        Self::start(launches, false)
    }

    /// Starts the program that starts those of all nodes and lives as long as they do.
    pub(crate) fn start_all(launch: Launch) -> Result<Self, (String, SpawnError)> {
        Self::start(vec![launch], true)
    }

    fn start(launches: Vec<Launch>, one_for_all: bool) -> Result<Self, (String, SpawnError)> {
        let mut children = Vec::new();
        let mut alive = BTreeMap::new();
        let mut cgroups = Vec::new();
        for (node, launch) in launches.into_iter().enumerate() {
            let spec = ProcessSpec {
                stdin: if launch.pass_stdin {
                    Stdin::Inherit
                } else {
                    Stdin::Null
                },
                stdout: Output::File(launch.log),
                stderr: Output::SameAsStdout,
                on_parent_death: Some(Signal::TERM),
                ..ProcessSpec::new(launch.argv, launch.env, "/")
            };
            match spawn(spec) {
                Ok(child) => {
                    // Before it is told what to start, so that all of it is inside.
                    if let Some(cgroup) = launch.cgroup {
                        if let Some(pid) = pid(child.pid()) {
                            drop(cgroup.add(pid));
                        }
                        cgroups.push(cgroup);
                    }
                    alive.insert(node, child.pid());
                    children.push(child);
                }
                Err(error) => {
                    drop(Group::from_children(children));
                    return Err((launch.name, error));
                }
            }
        }
        Ok(Self {
            group: Group::from_children(children),
            one_for_all,
            alive,
            kill_at: BTreeMap::new(),
            cgroups,
            sweeps: JoinSet::new(),
        })
    }

    /// The next that ends, and how. Cancel-safe; pends while none lives.
    pub(crate) async fn next_exit(&mut self) -> (Ended, String) {
        loop {
            if self.alive.is_empty() {
                std::future::pending::<()>().await;
            }
            let kill_next = self.kill_at.values().min().copied();
            tokio::select! {
                exit = self.group.next_exit() => match exit {
                    Some((node, exit)) => {
                        self.kill_at.remove(&node);
                        if let Some(pid) = self.alive.remove(&node) {
                            return if self.one_for_all {
                                let how =
                                    format!("what started its executor (pid {pid}) {}", exit.end);
                                (Ended::All, how)
                            } else {
                                let how = format!("its executor (pid {pid}) {}", exit.end);
                                (Ended::Node(node), how)
                            };
                        }
                    }
                    None => std::future::pending().await,
                },
                () = until(kill_next) => self.kill_given_up(),
            }
        }
    }

    /// Ends one that does not do its duty any more, while the others go on.
    pub(crate) fn give_up(&mut self, node: usize) {
        if !self.alive.contains_key(&node) {
            return;
        }
        self.signal(node, Signal::TERM);
        // One that was stopped acts on nothing else.
        self.signal(node, Signal::CONT);
        // It gives its ranks as long, and then it has to be gone itself.
        self.kill_at.insert(node, Instant::now() + 2 * GRACE);
    }

    fn kill_given_up(&mut self) {
        let now = Instant::now();
        let due = self.kill_at.extract_if(.., |_, at| *at <= now);
        for node in due.map(|(node, _)| node).collect::<Vec<_>>() {
            self.signal(node, Signal::KILL);
        }
    }

    fn signal(&self, node: usize, signal: Signal) {
        if let Some(child) = self.group.child(node) {
            // One that has ended is what is wanted.
            drop(child.signal_group(signal));
        }
    }

    /// Ends what dead executors left behind; this process adopted it as the nearest subreaper.
    /// A thread of the runtime does it, so that the other nodes are stopped meanwhile.
    pub(crate) fn end_orphans(&mut self) {
        // Where the last executor left nothing, as nearly always, there is no work for a thread.
        if !tree::has_children() {
            return;
        }
        let living = self.living();
        self.sweeps.spawn_blocking(move || {
            tree::end_all_children(&living, GRACE, ORPHAN_BOUND);
        });
    }

    /// Those that live.
    pub(crate) fn living(&self) -> Vec<Pid> {
        self.alive
            .values()
            .filter_map(|&number| pid(number))
            .collect()
    }

    /// Waits for all to end after Release, then ends them and what they left, which get `grace` between
    /// TERM and KILL.
    pub(crate) async fn finish(&mut self, bound: Duration, grace: Duration) {
        let deadline = Instant::now() + bound;
        while !self.alive.is_empty() {
            if timeout_at(deadline, self.next_exit()).await.is_err() {
                self.group.stop(Signal::TERM, grace);
                let killed = Instant::now() + ORPHAN_BOUND;
                while !self.alive.is_empty() && timeout_at(killed, self.next_exit()).await.is_ok() {
                }
                break;
            }
        }
        self.alive.clear();
        for cgroup in &self.cgroups {
            cgroup.kill();
        }
        self.end_orphans();
        while self.sweeps.join_next().await.is_some() {}
        self.cgroups.clear();
    }
}

fn pid(number: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(number).ok()?)
}
