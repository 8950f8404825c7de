//! Whether workers are silent: what they wrote and whether they touched their heartbeat files, and what
//! is known of each once they are (`--hang-timeout`).
//!
//! Silence is no output *and* no heartbeat. Processor time is shown and decides nothing: a rank that
//! waits for its peers may wait busily. Time in which the launcher itself did not run (stopped by the
//! terminal, or by a suspended machine) is nobody's silence.

use std::cell::LazyCell;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::layout::WorkerFiles;
use super::look::{Look, Process};

/// Shortest and longest pause between two looks at the workers' files.
const INTERVAL: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// Most processes that are shown of one worker.
const PROCESSES_MAX: usize = 8;

/// What a file was when it was last looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

fn mark(path: &Path) -> Option<Mark> {
    let found = fs::metadata(path).ok()?;
    Some(Mark {
        inode: found.ino(),
        length: found.len(),
        modified: (found.mtime(), found.mtime_nsec()),
    })
}

#[derive(Debug)]
struct Observed {
    rank: u32,
    local_rank: u32,
    pid: u32,
    outputs: [PathBuf; 2],
    heartbeat: PathBuf,
    seen: [Option<Mark>; 3],
    has_beaten: bool,
    ended: bool,
    silent: Duration,
    /// Processor time of its processes when it last gave a sign.
    cpu_ms: u64,
}

/// What is known of a silent worker.
#[derive(Clone, Debug, Serialize)]
pub struct SilentWorker {
    /// Its global rank.
    pub rank: u32,
    /// Its local rank.
    pub local_rank: u32,
    /// For how long it has given no sign, milliseconds.
    pub silent_ms: u64,
    /// Processor time of all its processes meanwhile, milliseconds.
    pub cpu_ms: u64,
    /// Whether it has ever touched its heartbeat file.
    pub has_beaten: bool,
    /// Its processes, the worker first.
    pub processes: Vec<Process>,
}

/// Watches the workers of one attempt.
#[derive(Debug)]
pub(super) struct Silence {
    timeout: Duration,
    /// Whether output counts. It does on the node that has rank 0 alone: where only that one
    /// writes, as is usual, the workers of other nodes are silent all the time.
    by_output: bool,
    workers: Vec<Observed>,
    looked: Instant,
}

impl Silence {
    pub(super) fn new(timeout: Duration, by_output: bool) -> Self {
        Self {
            timeout,
            by_output,
            workers: Vec::new(),
            looked: Instant::now(),
        }
    }

    /// Watches a worker that has just been started.
    pub(super) fn add(&mut self, rank: u32, local_rank: u32, pid: u32, files: &WorkerFiles) {
        self.workers.push(Observed {
            rank,
            local_rank,
            pid,
            outputs: [files.stdout.clone(), files.stderr.clone()],
            heartbeat: files.heartbeat.clone(),
            seen: [None; 3],
            has_beaten: false,
            ended: false,
            silent: Duration::ZERO,
            cpu_ms: 0,
        });
    }

    /// A worker has ended: nothing more is expected of it, and it may have been what the others
    /// waited for.
    pub(super) fn ended(&mut self, local_rank: u32) {
        for worker in &mut self.workers {
            worker.ended |= worker.local_rank == local_rank;
            worker.silent = Duration::ZERO;
        }
    }

    /// When to look next.
    pub(super) fn due(&self) -> Instant {
        self.looked + self.interval()
    }

    fn interval(&self) -> Duration {
        (self.timeout / 20).clamp(INTERVAL.0, INTERVAL.1)
    }

    /// Looks at the workers' files. Those that were all silent for too long, or nothing.
    pub(super) fn look(&mut self, now: Instant) -> Option<Vec<SilentWorker>> {
        let passed = now.saturating_duration_since(self.looked);
        // More than two intervals: the launcher itself did not run.
        let passed = passed.min(self.interval() * 2);
        self.looked = now;
        // While they are silent, and not for too long, nobody asks.
        let processes = LazyCell::new(Look::now);
        let by_output = self.by_output;
        for worker in self.workers.iter_mut().filter(|worker| !worker.ended) {
            if worker.gave_a_sign(by_output) {
                worker.silent = Duration::ZERO;
                worker.cpu_ms = processes.cpu_ms(worker.pid);
            } else {
                worker.silent = worker.silent.saturating_add(passed);
            }
        }
        let mut running = self.workers.iter().filter(|worker| !worker.ended);
        let is_judged = self.by_output || self.workers.iter().any(|worker| worker.has_beaten);
        let is_over = is_judged
            && running.clone().next().is_some()
            && running.all(|worker| worker.silent >= self.timeout);
        is_over.then(|| self.describe(&processes))
    }

    fn describe(&self, processes: &Look) -> Vec<SilentWorker> {
        let running = self.workers.iter().filter(|worker| !worker.ended);
        running
            .map(|worker| SilentWorker {
                rank: worker.rank,
                local_rank: worker.local_rank,
                silent_ms: u64::try_from(worker.silent.as_millis()).unwrap_or(u64::MAX),
                cpu_ms: processes.cpu_ms(worker.pid).saturating_sub(worker.cpu_ms),
                has_beaten: worker.has_beaten,
                processes: processes.tree(worker.pid, PROCESSES_MAX),
            })
            .collect()
    }
}

impl Observed {
    fn gave_a_sign(&mut self, by_output: bool) -> bool {
        let [out, err] = &self.outputs;
        let now = [mark(out), mark(err), mark(&self.heartbeat)];
        let beat = now[2].is_some() && now[2] != self.seen[2];
        self.has_beaten |= beat;
        let wrote = by_output
            && (0..2).any(|index| {
                // An empty file says nothing: the launcher made it.
                let first = self.seen[index].is_none();
                now[index] != self.seen[index]
                    && !(first && now[index].is_none_or(|mark| mark.length == 0))
            });
        self.seen = now;
        beat || wrote
    }
}

/// The report of a hang for people, which ends with a newline.
pub(super) fn report(timeout: Duration, silent: &[SilentWorker]) -> String {
    let mut text = format!(
        "herd launch: {} silent for {} s: neither output nor heartbeat (--hang-timeout)\n  rank  silent (s)  cpu meanwhile (s)  state  waits in              pid  program\n",
        match silent.len() {
            1 => "the worker was".to_owned(),
            count => format!("all {count} running workers were"),
        },
        timeout.as_secs_f64()
    );
    let seconds = |ms: u64| Duration::from_millis(ms).as_secs_f64();
    for worker in silent {
        let mut head = format!(
            "  {:>4}  {:>10.1}  {:>17.1}",
            worker.rank,
            seconds(worker.silent_ms),
            seconds(worker.cpu_ms)
        );
        for process in &worker.processes {
            let line = format!(
                "{head}  {:>5}  {:16} {:>8}  {}\n",
                process.state, process.wait_channel, process.pid, process.program
            );
            text.push_str(&line);
            head = " ".repeat(head.len());
        }
    }
    text.push_str("herd launch: the workers get SIGABRT: Python then writes the stacks of its threads to standard error; after that they are ended\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(directory: &Path, by_output: bool) -> (Silence, WorkerFiles) {
        let files = WorkerFiles {
            stdout: directory.join("out"),
            stderr: directory.join("err"),
            error: PathBuf::new(),
            heartbeat: directory.join("beat"),
        };
        fs::write(&files.stdout, "").unwrap();
        let mut silence = Silence::new(Duration::from_secs(10), by_output);
        silence.add(4, 0, std::process::id(), &files);
        (silence, files)
    }

    /// Looks every half second for as long.
    fn pass(silence: &mut Silence, seconds: u64) -> Option<Vec<SilentWorker>> {
        let mut found = None;
        for _ in 0..seconds * 2 {
            let now = silence.looked + Duration::from_millis(500);
            found = silence.look(now);
        }
        found
    }

    #[test]
    fn neither_output_nor_heartbeat_for_the_time_is_a_hang() {
        let directory = tempfile::tempdir().unwrap();
        let (mut silence, files) = watched(directory.path(), true);
        assert!(pass(&mut silence, 9).is_none());
        fs::write(&files.stdout, "a line").unwrap();
        assert!(pass(&mut silence, 9).is_none());
        fs::write(&files.heartbeat, "").unwrap();
        assert!(pass(&mut silence, 9).is_none());
        let found = pass(&mut silence, 2).unwrap();
        assert_eq!((found.len(), found[0].rank), (1, 4));
        assert!(found[0].has_beaten && found[0].silent_ms >= 10_000);
        assert!(!found[0].processes.is_empty());
        assert!(report(Duration::from_secs(10), &found).contains("the worker was silent for 10 s"));
    }

    #[test]
    fn time_in_which_the_launcher_did_not_run_is_nobodys_silence() {
        let directory = tempfile::tempdir().unwrap();
        let (mut silence, _files) = watched(directory.path(), true);
        let later = silence.looked + Duration::from_hours(1);
        assert!(silence.look(later).is_none());
        assert!(pass(&mut silence, 8).is_none());
        assert!(pass(&mut silence, 2).is_some());
    }

    #[test]
    fn where_rank_0_is_elsewhere_heartbeats_alone_are_judged() {
        let directory = tempfile::tempdir().unwrap();
        let (mut silence, files) = watched(directory.path(), false);
        assert!(pass(&mut silence, 60).is_none());
        fs::write(&files.heartbeat, "").unwrap();
        assert!(pass(&mut silence, 9).is_none());
        fs::write(&files.stdout, "does not count").unwrap();
        assert!(pass(&mut silence, 2).is_some());
        silence.ended(0);
        assert!(pass(&mut silence, 60).is_none());
    }
}
