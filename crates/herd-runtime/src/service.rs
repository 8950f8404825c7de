//! A daemon that runs beside a node's ranks and must be up before they start: started, found ready
//! by a condition within a bound, watched while it serves, and ended with all that it started.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use herd_core::exit::ProcessEnd;
use herd_launch::{Child, ProcessSpec, Signal, SpawnError, spawn};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Pause between looks whether it is ready.
const LOOK: Duration = Duration::from_millis(50);
/// Bound on one connection that only shows that somebody listens.
const CONNECT: Duration = Duration::from_secs(1);
/// Bytes of the log in which the line that says "ready" is looked for.
const LOG_BYTES: u64 = 256 * 1024;
/// How long a killed daemon may take to end before it is given up (uninterruptible sleep).
const ABANDON: Duration = Duration::from_secs(5);

/// What a daemon is and how it is seen to be ready.
#[derive(Debug)]
pub(crate) struct Conditions {
    /// What people call it.
    pub(crate) name: &'static str,
    /// The file that it writes to.
    pub(crate) log: PathBuf,
    /// What its log says when it is ready.
    pub(crate) line: &'static str,
    /// Where it listens then.
    pub(crate) listens: SocketAddr,
    /// How long it may take.
    pub(crate) within: Duration,
}

/// What happened to a daemon.
#[derive(Debug)]
pub(crate) enum ServiceEvent {
    /// It is ready. Once.
    Ready,
    /// It is of no use any more: one sentence. Once.
    Failed(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Starting,
    Ready,
    /// It ended or was late, or its end was asked for: nothing more is told of it.
    Over,
}

#[derive(Debug)]
pub(crate) struct Service {
    conditions: Conditions,
    child: Child,
    state: State,
    ready_by: Instant,
    /// When it is killed; set when it was asked to end.
    kill_at: Option<Instant>,
}

impl Service {
    /// Starts the daemon; its log must be where it writes.
    pub(crate) fn start(spec: ProcessSpec, conditions: Conditions) -> Result<Self, SpawnError> {
        let child = spawn(spec)?;
        let ready_by = Instant::now() + conditions.within;
        Ok(Self {
            conditions,
            child,
            state: State::Starting,
            ready_by,
            kill_at: None,
        })
    }

    /// Where it writes.
    pub(crate) fn log(&self) -> &PathBuf {
        &self.conditions.log
    }

    /// What happens to it next. Cancel-safe; pends when nothing more can happen.
    pub(crate) async fn next(&mut self) -> ServiceEvent {
        match self.state {
            State::Starting => {
                let Self {
                    child, conditions, ..
                } = self;
                let outcome = tokio::select! {
                    exit = child.wait() => Err(ended(conditions.name, exit.end, " before it was ready")),
                    ready = timeout_at(self.ready_by, until_ready(conditions)) => {
                        ready.map_err(|_late| late(conditions))
                    }
                };
                match outcome {
                    Ok(()) => {
                        self.state = State::Ready;
                        ServiceEvent::Ready
                    }
                    Err(sentence) => {
                        self.state = State::Over;
                        ServiceEvent::Failed(sentence)
                    }
                }
            }
            State::Ready => {
                let exit = self.child.wait().await;
                self.state = State::Over;
                ServiceEvent::Failed(ended(self.conditions.name, exit.end, ""))
            }
            State::Over => std::future::pending().await,
        }
    }

    /// Asks it to end: the daemon alone, which ends what it started. Asked again, a shorter grace
    /// counts.
    pub(crate) fn stop(&mut self, grace: Duration) {
        self.state = State::Over;
        let kill_at = Instant::now() + grace;
        if self.kill_at.is_none() {
            // One that has ended is what is wanted.
            let _gone = self.child.signal(Signal::TERM);
            let _gone = self.child.signal(Signal::CONT);
        }
        self.kill_at = Some(self.kill_at.map_or(kill_at, |before| before.min(kill_at)));
    }

    /// Waits until it and its process group have ended after [`Service::stop`]; what is left when
    /// the grace is over is killed. Cancel-safe.
    pub(crate) async fn stopped(&mut self) {
        let kill_at = *self.kill_at.get_or_insert_with(Instant::now);
        if timeout_at(kill_at, self.child.wait()).await.is_err() {
            let _gone = self.child.signal_group(Signal::KILL);
            if timeout_at(kill_at + ABANDON, self.child.wait())
                .await
                .is_err()
            {
                return;
            }
        }
        self.child.end_leftovers().await;
    }
}

/// Waits for both signs: what it says, and that somebody listens.
async fn until_ready(conditions: &Conditions) {
    while !says_ready(conditions) || !listens(conditions.listens).await {
        sleep(LOOK).await;
    }
}

fn says_ready(conditions: &Conditions) -> bool {
    let mut bytes = Vec::new();
    let read =
        File::open(&conditions.log).and_then(|file| file.take(LOG_BYTES).read_to_end(&mut bytes));
    read.is_ok() && String::from_utf8_lossy(&bytes).contains(conditions.line)
}

async fn listens(address: SocketAddr) -> bool {
    matches!(
        timeout(CONNECT, TcpStream::connect(address)).await,
        Ok(Ok(_))
    )
}

fn ended(name: &str, end: ProcessEnd, when: &str) -> String {
    format!("its {name} {end}{when}")
}

fn late(conditions: &Conditions) -> String {
    format!(
        "its {} was not ready within {} s: `{}` was missing in its log, or {} did not answer",
        conditions.name,
        conditions.within.as_secs(),
        conditions.line,
        conditions.listens
    )
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use herd_launch::Output;
    use tempfile::TempDir;

    use super::*;

    fn start(script: &str, within: Duration) -> (Service, (TempDir, TcpListener)) {
        let directory = TempDir::new().unwrap();
        let log = directory.path().join("log");
        let argv = ["/bin/sh", "-c", script].map(Into::into).to_vec();
        let mut spec = ProcessSpec::new(argv, Vec::new(), "/");
        spec.stdout = Output::File(log.clone());
        spec.stderr = Output::SameAsStdout;
        // Anybody who listens will do.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let conditions = Conditions {
            name: "daemon",
            log,
            line: "up and ready",
            listens: listener.local_addr().unwrap(),
            within,
        };
        let service = Service::start(spec, conditions).unwrap();
        (service, (directory, listener))
    }

    #[tokio::test]
    async fn a_daemon_is_ready_when_it_says_so_and_its_end_is_told() {
        let script = "echo up and ready; exec sleep 0.2";
        let (mut service, _kept) = start(script, Duration::from_mins(1));
        assert!(matches!(service.next().await, ServiceEvent::Ready));
        let ServiceEvent::Failed(text) = service.next().await else {
            panic!("ready twice");
        };
        assert_eq!(text, "its daemon exited with code 0");
    }

    #[tokio::test]
    async fn i6_one_that_is_late_or_ends_early_is_named() {
        let (mut late, _one) = start("exec sleep 3000", Duration::from_millis(50));
        let (mut early, _two) = start("exit 3", Duration::from_mins(1));
        let ServiceEvent::Failed(text) = late.next().await else {
            panic!("a silent daemon was ready");
        };
        assert!(text.contains("not ready within"), "{text}");
        let ServiceEvent::Failed(text) = early.next().await else {
            panic!("a dead daemon was ready");
        };
        assert_eq!(text, "its daemon exited with code 3 before it was ready");
        late.stop(Duration::from_mins(1));
        late.stopped().await;
    }

    #[tokio::test]
    async fn i5_one_that_ignores_sigterm_is_killed_with_what_it_started() {
        let script =
            "trap '' TERM; sleep 3000 & echo $!; echo up and ready; while :; do sleep 1; done";
        let (mut service, _kept) = start(script, Duration::from_mins(1));
        assert!(matches!(service.next().await, ServiceEvent::Ready));
        let text = std::fs::read_to_string(service.log()).unwrap();
        let child: i32 = text.lines().next().unwrap().parse().unwrap();
        service.stop(Duration::from_millis(100));
        service.stopped().await;
        assert!(service.child.exit().is_some());
        let group = herd_launch::Pid::from_raw(service.child.pid().cast_signed()).unwrap();
        assert!(!herd_launch::tree::group_has_living(group), "{child} lives");
    }
}
