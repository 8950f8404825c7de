//! A supervisor as its host sees it: starting all or none, telling of ends, and ending everything when the host lets go
//! (I5). The program around it, with its guard, is tested from Python, with hosts that are killed.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails where something unexpected happens"
)]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::JoinHandle;

use herd_launch::supervision::protocol::{Decoder, Report, Request, Text, Worker, encode};
use herd_launch::supervision::server;
use herd_testing::wait::DEADLINE;
use herd_testing::{alive, eventually, pids};

/// A host's end of a supervisor that runs on a thread of its own.
struct Host {
    channel: UnixStream,
    decoder: Decoder,
    serving: JoinHandle<()>,
}

impl Host {
    fn start(workers: Vec<Worker>) -> Self {
        let (mine, theirs) = UnixStream::pair().unwrap();
        mine.set_read_timeout(Some(DEADLINE)).unwrap();
        // The workers belong to this thread, which lives as long as the supervisor.
        let serving = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime
                .block_on(server::serve(theirs, None, std::future::pending()))
                .unwrap();
        });
        let mut host = Self {
            channel: mine,
            decoder: Decoder::default(),
            serving,
        };
        let env = std::env::vars_os().map(|(name, value)| (name.into(), value.into()));
        host.say(&Request::Start {
            env: env.collect(),
            workers,
            marker: None,
        });
        host
    }

    fn say(&mut self, request: &Request) {
        self.channel.write_all(&encode(request).unwrap()).unwrap();
    }

    /// The next report; none when the supervisor has said its last word.
    fn hear(&mut self) -> Option<Report> {
        loop {
            if let Some(report) = self.decoder.take().unwrap() {
                return Some(report);
            }
            let mut bytes = [0; 4096];
            match self.channel.read(&mut bytes).unwrap() {
                0 => return None,
                length => self.decoder.feed(&bytes[..length]),
            }
        }
    }

    fn started(&mut self) -> Vec<u32> {
        match self.hear() {
            Some(Report::Started { pids }) => pids,
            other => panic!("{other:?}"),
        }
    }

    fn leave(self) {
        drop(self.channel);
        self.serving.join().unwrap();
    }
}

fn shell(script: &str) -> Worker {
    let words = ["sh", "-c", script];
    Worker {
        argv: words.map(|word| Text::Utf8(word.to_owned())).to_vec(),
        env: Vec::new(),
        stdout: None,
        stderr: None,
    }
}

fn write_pid(path: &Path) -> String {
    format!("echo $$ > {}; exec sleep 600", path.display())
}

#[test]
fn ends_are_told_as_they_come() {
    let mut host = Host::start(vec![shell("exit 3"), shell("kill -KILL $$")]);
    assert_eq!(host.started().len(), 2);
    let mut codes = std::collections::BTreeMap::new();
    while let Some(report) = host.hear() {
        if let Report::Exited {
            index,
            code,
            stopped,
            ..
        } = report
        {
            codes.insert(index, (code, stopped));
        }
    }
    assert_eq!(
        codes.into_iter().collect::<Vec<_>>(),
        [(0, (3, false)), (1, (-9, false))]
    );
    host.leave();
}

#[test]
fn none_is_left_when_one_cannot_start() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid");
    let mut missing = shell("");
    missing.argv = vec![Text::Utf8("no-such-program-anywhere".to_owned())];
    let mut host = Host::start(vec![shell(&write_pid(&file)), missing]);
    match host.hear() {
        Some(Report::Failed {
            index,
            errno,
            subject,
            ..
        }) => {
            assert_eq!((index, errno), (1, 2));
            assert_eq!(
                subject,
                Some(Text::Utf8("no-such-program-anywhere".to_owned()))
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(host.hear(), None);
    host.leave();
    assert!(pids(&file).iter().all(|&pid| !alive(pid)));
}

#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let mut worker = shell("true");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("none").join("out");
    worker.stdout = Some(path.into_os_string().into());
    let mut host = Host::start(vec![worker]);
    let told = host.hear();
    assert!(
        matches!(told, Some(Report::Failed { errno: 2, .. })),
        "{told:?}"
    );
    host.leave();
}

#[test]
fn i5_workers_end_when_the_host_lets_go() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid");
    let mut host = Host::start(vec![shell(&write_pid(&file))]);
    host.started();
    eventually("the worker runs", || !pids(&file).is_empty());
    host.leave();
    assert!(pids(&file).iter().all(|&pid| !alive(pid)));
}

#[test]
fn asked_again_it_kills_at_once() {
    let script = "trap '' TERM; while :; do sleep 600; done";
    let mut host = Host::start(vec![shell(script)]);
    let pid = i32::try_from(host.started()[0]).unwrap();
    for _ in 0..2 {
        host.say(&Request::Stop {
            signal: 15,
            grace_ms: 3_600_000,
        });
    }
    let told = host.hear();
    assert!(
        matches!(
            told,
            Some(Report::Exited {
                code: -9 | -15,
                stopped: true,
                ..
            })
        ),
        "{told:?}"
    );
    assert_eq!(host.hear(), None);
    host.leave();
    assert!(!alive(pid));
}

#[test]
fn noise_on_the_channel_ends_it_with_its_workers() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid");
    let mut host = Host::start(vec![shell(&write_pid(&file))]);
    host.started();
    eventually("the worker runs", || !pids(&file).is_empty());
    host.channel.write_all(&[0xff; 64]).unwrap();
    assert!(
        host.serving.join().is_err(),
        "it says that it has not understood"
    );
    eventually("the worker is gone", || {
        pids(&file).iter().all(|&pid| !alive(pid))
    });
}
