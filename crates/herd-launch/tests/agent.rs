//! The agent of one node with real workers: logs, ends, restarts of its attempts.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use herd_core::exit::ProcessEnd;
use herd_launch::agent::events::Events;
use herd_launch::agent::layout::Layout;
use herd_launch::agent::{Agent, Outcome, Settings, Streams, Told, WorkerCommand};
use herd_launch::world::World;
use herd_testing::{alive, eventually, pids};
use tokio::sync::mpsc;

fn world(workers: u32) -> World {
    World {
        node_rank: 0,
        nodes: 1,
        first_rank: 0,
        world_size: workers,
        first_role_rank: 0,
        role_world_size: workers,
        master_addr: "127.0.0.1".to_owned(),
        master_port: 1,
        has_store: false,
    }
}

/// Workers that each run `script` with RANK, ATTEMPT and DIR in their environment.
fn agent(directory: &Path, workers: u32, script: &str, streams: Streams) -> Agent {
    let script = script.to_owned();
    let own = directory.to_string_lossy().into_owned();
    Agent::new(Settings {
        workers,
        describe: Box::new(move |worker| {
            let set = |name: &str, value: String| (OsString::from(name), OsString::from(value));
            Ok(WorkerCommand {
                argv: ["sh", "-c", &script].map(OsString::from).to_vec(),
                env: std::env::vars_os()
                    .chain([
                        set("RANK", worker.local_rank.to_string()),
                        set("ATTEMPT", worker.attempt.to_string()),
                        set("DIR", own.clone()),
                    ])
                    .collect(),
                header: format!("[w{}]:", worker.local_rank),
                cpus: None,
            })
        }),
        streams: Box::new(move |_, _| streams),
        layout: Layout::make(Some(&directory.join("logs")), Path::new("/tmp"), "run").unwrap(),
        wanted_out: Vec::new(),
        wanted_err: Vec::new(),
        max_restarts: 0,
        first_failure: Box::new(|_, _| {}),
        shutdown_timeout: Duration::from_secs(2),
        hang_timeout: None,
        events: Events::none(),
    })
}

fn nobody() -> (mpsc::Sender<Told>, mpsc::Receiver<Told>) {
    mpsc::channel(4)
}

const FILES: Streams = Streams {
    redirect_out: true,
    redirect_err: true,
    tee_out: false,
    tee_err: false,
    silent: false,
};

#[tokio::test]
async fn row_8_each_attempt_has_its_own_files() {
    let directory = tempfile::tempdir().unwrap();
    let agent = agent(
        directory.path(),
        2,
        "echo $RANK $ATTEMPT; echo e >&2; exit 3",
        FILES,
    );
    let (_keep, mut told) = nobody();
    for attempt in 0..2 {
        let outcome = agent.attempt(&world(2), attempt, &mut told).await.unwrap();
        let Outcome::Failed(ends) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(ends.len(), 2);
        let run = agent.settings().layout.run_dir().unwrap();
        for rank in 0..2 {
            let own = run.join(format!("attempt_{attempt}/{rank}"));
            let end = ends.iter().find(|end| end.local_rank == rank).unwrap();
            // The other may have been ended before it wrote.
            if end.exit.end == ProcessEnd::Exited(3) {
                let text = fs::read_to_string(own.join("stdout.log")).unwrap();
                assert_eq!(text, format!("{rank} {attempt}\n"));
                assert_eq!(fs::read_to_string(own.join("stderr.log")).unwrap(), "e\n");
            }
        }
    }
}

#[tokio::test]
async fn row_25_a_worker_leads_its_own_session() {
    let directory = tempfile::tempdir().unwrap();
    let agent = agent(directory.path(), 1, "ps -o pid=,pgid=,sid= -p $$", FILES);
    let (_keep, mut told) = nobody();
    let outcome = agent.attempt(&world(1), 0, &mut told).await.unwrap();
    assert!(matches!(outcome, Outcome::Succeeded(_)), "{outcome:?}");
    let run = agent.settings().layout.run_dir().unwrap();
    let text = fs::read_to_string(run.join("attempt_0/0/stdout.log")).unwrap();
    let numbers: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(numbers.len(), 3, "{text}");
    assert!(
        numbers[0] == numbers[1] && numbers[1] == numbers[2],
        "{text}"
    );
}

#[tokio::test]
async fn rows_21_and_29_a_failure_ends_the_others_within_the_timeout() {
    let directory = tempfile::tempdir().unwrap();
    let script = "if [ $RANK = 0 ]; then until [ -e $DIR/ready ]; do sleep 0.02; done; exit 5; fi
        trap '' TERM; touch $DIR/ready; while :; do sleep 0.1; done";
    let agent = agent(directory.path(), 2, script, FILES);
    let (_keep, mut told) = nobody();
    let began = Instant::now();
    let outcome = agent.attempt(&world(2), 0, &mut told).await.unwrap();
    let Outcome::Failed(ends) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(ends[0].exit.end, ProcessEnd::Exited(5));
    assert_eq!(ends[1].exit.end, ProcessEnd::Signaled(9));
    assert!(ends[1].exit.stopped && !ends[0].exit.stopped);
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn row_23_what_a_worker_leaves_behind_goes_with_it() {
    for code in [0, 1] {
        let directory = tempfile::tempdir().unwrap();
        let script = format!("sleep 600 & echo $! > $DIR/pid; exit {code}");
        let agent = agent(directory.path(), 1, &script, FILES);
        let (_keep, mut told) = nobody();
        agent.attempt(&world(1), 0, &mut told).await.unwrap();
        let left = pids(&directory.path().join("pid"));
        assert!(!left.is_empty());
        eventually("it is gone", || !left.iter().any(|&pid| alive(pid)));
    }
}

#[tokio::test]
async fn rows_26_and_27_a_signal_reaches_workers_as_itself_and_again_kills() {
    let directory = tempfile::tempdir().unwrap();
    let script = "trap 'echo got > $DIR/got' INT; touch $DIR/ready; while :; do sleep 0.05; done";
    let agent = agent(directory.path(), 1, script, FILES);
    let (tell, mut told) = nobody();
    let path = directory.path().to_owned();
    // The agent runs on this thread, so its user is on another.
    let user = std::thread::spawn(move || {
        for file in ["ready", "got"] {
            eventually(file, || path.join(file).exists());
            tell.blocking_send(Told::End(2)).unwrap();
        }
    });
    let outcome = agent.attempt(&world(1), 0, &mut told).await;
    user.join().unwrap();
    let Outcome::Signalled { signal, workers } = outcome.unwrap() else {
        panic!()
    };
    assert_eq!(signal, 2);
    assert_eq!(workers[0].exit.end, ProcessEnd::Signaled(9));
}
