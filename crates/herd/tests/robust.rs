//! What a job must survive, and what must end it: silence, strangers on the port, readers that
//! leave, floods, impatience and hang-ups.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod live;

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use herd_link::resume::{Resume, Token};
use herd_link::{Channel, Frame, Key, connect};
use herd_testing::process::{allow_open_files, peak_memory_kib};
use live::{Herd, alive, assert_code, children, eventually, pid_of, pids, signal, stderr, stdout};

/// Strangers that connect to the coordinator at once; many more than may wait in the handshake.
const STRANGERS: usize = 1000;

/// Bound on the end of a job that is told to end while strangers are there.
const NO_DELAY: Duration = Duration::from_secs(10);

/// Bytes that one rank writes without a newline.
const FLOOD: usize = 200_000_000;

/// The most memory driver and executor may each ever have held during the flood, in KiB.
const FLOOD_MEMORY_KIB: u64 = 64 * 1024;

/// Deadline on the end after a second Ctrl-C; well under the grace that the first one gives.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Two ranks that say their process ids and sleep.
fn sleepers(herd: &Herd) -> (Child, PathBuf) {
    let list = herd.path("pids");
    let script = format!("echo $$ >> {}; exec sleep 3000", list.display());
    let run = herd.start(&["run", "-N", "2", "--", "sh", "-c", &script]);
    eventually("both ranks", || pids(&list).len() == 2);
    (run, list)
}

fn all_gone(list: &Path) {
    eventually("the end of every process", || {
        pids(list).iter().all(|&pid| !alive(pid))
    });
}

#[test]
fn i5_a_stopped_executor_is_lost_and_named() {
    let herd = Herd::new();
    let (run, list) = sleepers(&herd);
    let driver = children(pid_of(&run))[0];
    let executors = children(driver);
    assert_eq!(executors.len(), 2);
    signal(executors[0], "-STOP");
    eventually("the end of the job", || !alive(driver));
    let output = run.wait_with_output().unwrap();
    assert_code(&output, 125);
    let text = stderr(&output);
    assert!(text.contains("node0") || text.contains("node1"), "{text}");
    all_gone(&list);
    eventually("the end of the executors", || {
        executors.iter().all(|&pid| !alive(pid))
    });
}

/// A peer that holds the wrong key, or the right one and talks nonsense.
async fn with_a_key(address: SocketAddr, job: &str, key: &Key, nonsense: &[Frame]) -> bool {
    let channel = Channel {
        job: job.to_owned(),
        attempt: 1,
    };
    let bound = Duration::from_secs(30);
    let Ok((mut sender, mut receiver)) = connect(address, key, &channel, bound).await else {
        return false;
    };
    for frame in nonsense {
        sender.send(frame).await.unwrap();
    }
    drop(sender.flush().await);
    // Whatever the answer is, it comes or the connection ends.
    drop(receiver.recv().await);
    true
}

#[test]
fn strangers_on_the_port_change_nothing() {
    // And those of tests beside this one.
    allow_open_files(2 * STRANGERS as u64);
    let herd = Herd::new();
    let (ready, go) = (herd.path("ready"), herd.path("go"));
    let script = format!(
        "touch {}.$HERD_RANK; i=0; until [ -e {} ]; do i=$((i+1)); echo line $i; sleep 0.01; done; \
         echo done $i",
        ready.display(),
        go.display()
    );
    let run = herd
        .command(&["run", "-N", "2", "--", "sh", "-c", &script])
        .stdout(fs::File::create(herd.path("output")).unwrap())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("both ranks", || {
        herd.path("ready.0").exists() && herd.path("ready.1").exists()
    });
    let address = herd.coordinator();

    let mut garbage = TcpStream::connect(address).unwrap();
    // The coordinator may hang up before it has taken all of it.
    drop(garbage.write_all(&vec![0xff; 100_000]));
    let mut http = TcpStream::connect(address).unwrap();
    http.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut half = TcpStream::connect(address).unwrap();
    half.write_all(&[0]).unwrap();
    let crowd: Vec<TcpStream> = (0..STRANGERS)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    // Hung up on at its time limit at the latest: the strangers have had their whole effect.
    eventually("the hang-up on the half-open stranger", || {
        half.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        match half.read(&mut [0; 64]) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    });
    let job = herd.job_dir();
    let id = job.file_name().unwrap().to_str().unwrap().to_owned();
    let key = Key::from_hex(fs::read_to_string(job.join("key")).unwrap().trim()).unwrap();
    let hello =
        br#"{"type":"hello","version":1,"node":"node0","pid":1,"address":"x","free_port":1}"#;
    let token = Token([9; 16]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let wrong = Key::generate().unwrap();
        assert!(!with_a_key(address, &id, &wrong, &[]).await, "a wrong key");
        for nonsense in [
            vec![Frame::Control(b"}{".to_vec())],
            vec![Frame::Control(hello.to_vec())],
            vec![
                Frame::Resume(Resume { token, received: 0 }),
                Frame::Received(1 << 40),
            ],
            vec![Frame::Resume(Resume { token, received: 7 })],
            vec![Frame::Control(
                br#"{"type":"client","version":77}"#.to_vec(),
            )],
        ] {
            let bound = Duration::from_mins(1);
            let talk = with_a_key(address, &id, &key, &nonsense);
            let heard = tokio::time::timeout(bound, talk).await;
            assert!(
                heard.is_ok(),
                "{nonsense:?} is neither answered nor hung up on"
            );
        }
    });
    fs::write(&go, "").unwrap();
    let asked = Instant::now();
    let output = run.wait_with_output().unwrap();
    let took = asked.elapsed();
    drop((garbage, http, crowd));
    assert_code(&output, 0);
    assert!(took < NO_DELAY, "the end of the job took {took:?}");
    let text = fs::read_to_string(herd.path("output")).unwrap();
    for rank in 0..2 {
        let prefix = format!("(node{rank}, rank={rank}) ");
        let lines: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix(&prefix))
            .collect();
        let mut expected: Vec<String> = (1..lines.len()).map(|i| format!("line {i}")).collect();
        expected.push(format!("done {}", lines.len() - 1));
        assert_eq!(lines, expected);
    }
}

#[test]
fn a_reader_that_leaves_does_not_stop_the_job() {
    let herd = Herd::new();
    let marker = herd.path("marker");
    let script = format!("yes | head -c 20000000; touch {}", marker.display());
    let mut run = herd.start(&["run", "--", "sh", "-c", &script]);
    let mut first = [0; 100];
    let mut reader = run.stdout.take().unwrap();
    reader.read_exact(&mut first).unwrap();
    drop(reader);
    let output = run.wait_with_output().unwrap();
    assert_code(&output, 0);
    let text = stderr(&output);
    assert_eq!(text.matches("warning").count(), 1, "{text}");
    assert!(marker.exists());
}

#[test]
fn i7_a_flood_without_newlines_is_complete_and_bounded() {
    let herd = Herd::new();
    let (written, go) = (herd.path("written"), herd.path("go"));
    let script = format!(
        "if [ $HERD_RANK = 0 ]; then head -c {FLOOD} /dev/zero | tr '\\0' x; touch {}; fi; \
         until [ -e {} ]; do sleep 0.1; done",
        written.display(),
        go.display()
    );
    let mut run = herd
        .command(&["run", "-N", "2", "--", "sh", "-c", &script])
        .stdout(fs::File::create(herd.path("output")).unwrap())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("the flood", || written.exists());
    let shown = || fs::metadata(herd.path("output")).unwrap().len();
    // A piece of a line may still wait for its end. In steps, since the deadline is for each.
    for percent in [25, 50, 75, 99] {
        eventually("the next part of the output", || {
            shown() > (FLOOD / 100 * percent) as u64
        });
    }
    let driver = children(pid_of(&run))[0];
    let own: Vec<i32> = children(driver).into_iter().chain([driver]).collect();
    let peaks: Vec<u64> = own.iter().map(|&pid| peak_memory_kib(pid)).collect();
    fs::write(&go, "").unwrap();
    let mut text = String::new();
    run.stderr
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(0), "{text}");
    let output = fs::read_to_string(herd.path("output")).unwrap();
    let mut count = 0;
    for line in output.lines() {
        let piece = line.strip_prefix("(node0, rank=0) ").unwrap();
        let piece = piece.strip_suffix(" [line continues]").unwrap_or(piece);
        assert!(piece.bytes().all(|byte| byte == b'x'));
        count += piece.len();
    }
    assert_eq!(count, FLOOD);
    assert!(
        peaks.iter().all(|&peak| peak < FLOOD_MEMORY_KIB),
        "executors and driver held {peaks:?} KiB"
    );
}

#[test]
fn a_rank_may_close_its_stdout_and_go_on() {
    let herd = Herd::new();
    let marker = herd.path("marker");
    let script = format!(
        "echo before; exec >&-; sleep 1; touch {}; echo after >&2; exit 3",
        marker.display()
    );
    let output = herd.run(&["run", "--", "sh", "-c", &script]);
    assert_code(&output, 3);
    assert!(marker.exists());
    assert_eq!(stdout(&output), "before\n");
    assert!(stderr(&output).contains("after\n"), "{}", stderr(&output));
}

#[test]
fn ctrl_c_twice_ends_at_once_what_ignores_it() {
    let herd = Herd::new();
    let list = herd.path("pids");
    let text = format!(
        "trap '' INT TERM\necho $$ >> {}\nwhile :; do sleep 1; done\n",
        list.display()
    );
    herd.file("deaf.sh", &text);
    let run = herd.start(&["run", "-N", "2", "--", "sh", "deaf.sh"]);
    eventually("both ranks", || pids(&list).len() == 2);
    let guard = pid_of(&run);
    let driver = children(guard)[0];
    signal(guard, "-INT");
    // Two signals of one kind merge while the first is pending.
    eventually("the cancellation", || herd.events().contains("signal 2"));
    let second = Instant::now();
    signal(guard, "-INT");
    eventually("the end of the job", || !alive(driver));
    let took = second.elapsed();
    assert!(took < AT_ONCE, "the second Ctrl-C took {took:?}");
    let output = run.wait_with_output().unwrap();
    assert_code(&output, 130);
    all_gone(&list);
}

#[test]
fn a_hang_up_cancels() {
    let herd = Herd::new();
    let (run, list) = sleepers(&herd);
    signal(pid_of(&run), "-HUP");
    let output = run.wait_with_output().unwrap();
    assert_code(&output, 129);
    all_gone(&list);
}

#[test]
fn a_hang_up_that_nohup_ignores_changes_nothing() {
    let herd = Herd::new();
    let (ready, go) = (herd.path("ready"), herd.path("go"));
    let script = format!(
        "touch {}; until [ -e {} ]; do sleep 0.1; done; exit 4",
        ready.display(),
        go.display()
    );
    let wrapper = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"];
    let mut command = herd.under(&wrapper, &["run", "--", "sh", "-c", &script]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = command.spawn().unwrap();
    eventually("the rank", || ready.exists());
    signal(pid_of(&run), "-HUP");
    for child in children(pid_of(&run)) {
        signal(child, "-HUP");
    }
    fs::write(&go, "").unwrap();
    assert_code(&run.wait_with_output().unwrap(), 4);
}

#[test]
fn control_sequences_do_not_reach_the_output_except_colour() {
    let herd = Herd::new();
    let script = r"printf '\033[31mred\033[0m\033[2J\033[H \033]0;title\007a\007b\033Pq\033\\c\td\n' | tee /dev/stderr";
    for nodes in ["1", "2"] {
        let output = herd.run(&["run", "-N", nodes, "--", "sh", "-c", script]);
        assert_code(&output, 0);
        for text in [stdout(&output), stderr(&output)] {
            assert!(text.contains("\u{1b}[31mred\u{1b}[0m ab"), "{text:?}");
            assert!(text.contains("c\td\n"), "{text:?}");
            let rest = text.replace("\u{1b}[31m", "").replace("\u{1b}[0m", "");
            let bad = |c: char| c.is_control() && !matches!(c, '\n' | '\t' | '\r');
            assert!(!rest.contains(bad), "{text:?}");
            assert!(!rest.contains("title"), "{text:?}");
        }
    }
}
