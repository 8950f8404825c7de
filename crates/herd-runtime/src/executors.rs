//! The executor processes of a driver on this machine: started, watched and, at the end, gone.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use herd_launch::cgroup::Cgroup;
use herd_launch::{Group, Output, Pid, ProcessSpec, Signal, SpawnError, Stdin, spawn, tree};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// What orphans of a dead executor get between TERM and KILL (I5).
const ORPHAN_GRACE: Duration = Duration::from_secs(1);
/// Bound on ending orphans, killing included.
const ORPHAN_BOUND: Duration = Duration::from_secs(5);

/// How one executor is started.
pub(crate) struct Launch {
    pub(crate) node: String,
    pub(crate) argv: Vec<OsString>,
    /// Where its own messages go.
    pub(crate) log: PathBuf,
    pub(crate) pass_stdin: bool,
    /// The group with its memory limit, where the job has one.
    pub(crate) cgroup: Option<Cgroup>,
}

pub(crate) struct Executors {
    group: Group,
    /// Pid of each that lives, by node index, which is the group's index too.
    alive: BTreeMap<usize, u32>,
    /// Removed after the last process has ended.
    cgroups: Vec<Cgroup>,
    /// Ends of orphans that are under way; each has its own bound.
    sweeps: JoinSet<()>,
}

impl Executors {
    /// Starts all; when one cannot start, those before it are killed with the group.
    pub(crate) fn start(launches: Vec<Launch>) -> Result<Self, (String, SpawnError)> {
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
                ..ProcessSpec::new(launch.argv, std::env::vars_os().collect(), "/")
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
                    return Err((launch.node, error));
                }
            }
        }
        Ok(Self {
            group: Group::from_children(children),
            alive,
            cgroups,
            sweeps: JoinSet::new(),
        })
    }

    /// The next executor that ends: its node and how. Cancel-safe; pends while none lives.
    pub(crate) async fn next_exit(&mut self) -> (usize, String) {
        loop {
            if self.alive.is_empty() {
                std::future::pending::<()>().await;
            }
            match self.group.next_exit().await {
                Some((node, exit)) => {
                    if let Some(pid) = self.alive.remove(&node) {
                        return (node, format!("its executor (pid {pid}) {}", exit.end));
                    }
                }
                None => std::future::pending().await,
            }
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
            tree::end_all_children(&living, ORPHAN_GRACE, ORPHAN_BOUND);
        });
    }

    fn living(&self) -> Vec<Pid> {
        self.alive
            .values()
            .filter_map(|&number| pid(number))
            .collect()
    }

    /// Waits for all to end after Release, then ends them and what they left.
    pub(crate) async fn finish(&mut self, bound: Duration) {
        let deadline = Instant::now() + bound;
        while !self.alive.is_empty() {
            if timeout_at(deadline, self.next_exit()).await.is_err() {
                self.group.stop(Signal::TERM, ORPHAN_GRACE);
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
