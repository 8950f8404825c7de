//! Real processes, looked at from outside: rows of the launcher specification §18 and its defects.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use herd_core::exit::ProcessEnd;
use herd_launch::{
    Child, Group, Output, Pid, ProcessSpec, Signal, SpawnError, Stdin, spawn, spawn_in_group, tree,
};
use herd_testing::{alive, eventually, pids, state};

const DEADLINE: Duration = Duration::from_secs(10);
/// Longer than any test.
const LONG: Duration = Duration::from_mins(10);

fn spec(argv: &[&str]) -> ProcessSpec {
    let path = std::env::var_os("PATH").unwrap();
    ProcessSpec::new(
        argv.iter().map(OsString::from).collect(),
        vec![("PATH".into(), path)],
        "/",
    )
}

fn sh(script: &str) -> ProcessSpec {
    spec(&["sh", "-c", script])
}

fn to_file(mut spec: ProcessSpec, path: &Path) -> ProcessSpec {
    spec.stdout = Output::File(path.to_owned());
    spec.stderr = Output::SameAsStdout;
    spec
}

async fn output(spec: ProcessSpec) -> (ProcessEnd, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out");
    let mut child = spawn(to_file(spec, &path)).unwrap();
    let end = child.wait().await.end;
    assert!(child.end_leftovers().await);
    (end, fs::read_to_string(path).unwrap())
}

/// The process id that a script wrote.
fn number(path: &Path) -> Option<Pid> {
    pids(path).first().and_then(|&pid| Pid::from_raw(pid))
}

/// Neither running nor stopped; a zombie is gone.
fn is_gone(pid: Pid) -> bool {
    !alive(pid.as_raw_nonzero().get())
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.pid().try_into().unwrap()).unwrap()
}

async fn ends(group: &mut Group) -> Vec<(usize, herd_launch::ExitInfo)> {
    let mut ends = Vec::new();
    while let Some(end) = group.next_exit().await {
        ends.push(end);
    }
    ends
}

#[tokio::test]
async fn row25_a_process_leads_its_own_session_with_clean_signals_and_descriptors() {
    let (_keep, leaked) = rustix::pipe::pipe().unwrap();
    // Without a pipe, whose ends the shell may still have while it is looked at.
    let (end, text) = output(sh("cut -d' ' -f1,5,6 /proc/$$/stat; ls /proc/$$/fd; true")).await;
    drop(leaked);
    assert_eq!(end, ProcessEnd::Exited(0));
    let lines: Vec<&str> = text.lines().collect();
    let ids: Vec<&str> = lines[0].split(' ').collect();
    assert!(ids[0] == ids[1] && ids[1] == ids[2], "{text}");
    assert_eq!(lines[1..], ["0", "1", "2"], "{text}");

    let (_, text) = output(spec(&["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"])).await;
    assert_eq!(text.matches("0000000000000000\n").count(), 2, "{text}");
}

#[tokio::test]
async fn row5_the_environment_is_exactly_what_was_given() {
    let mut spec = spec(&["/usr/bin/env"]);
    spec.env = vec![("A".into(), "1".into()), ("B".into(), "x=y z".into())];
    assert_eq!(output(spec).await.1, "A=1\nB=x=y z\n");
}

#[tokio::test]
async fn row3_d1_a_partial_start_leaves_no_survivor() {
    let marker = format!("HERD_TEST_ROW3={}", std::process::id());
    let (name, value) = marker.split_once('=').unwrap();
    let bad: [fn(&mut ProcessSpec); 3] = [
        |spec| spec.argv = vec!["sleep".into(), "6\0 0".into()],
        |spec| spec.argv = vec!["/no-such-directory/program".into()],
        |spec| spec.cwd = "/no-such-directory".into(),
    ];
    for spoil in bad {
        let mut specs: Vec<_> = (0..3).map(|_| spec(&["sleep", "600"])).collect();
        for spec in &mut specs {
            spec.env.push((name.into(), value.into()));
        }
        spoil(&mut specs[2]);
        let error = Group::spawn_all(specs).unwrap_err();
        assert_eq!((error.index, error.count), (2, 3));
        let all = tree::descendants(rustix::process::getpid());
        assert!(
            !all.iter()
                .any(|&pid| !is_gone(pid) && tree::environ_has(pid, &marker))
        );
    }
}

#[tokio::test]
async fn a_failed_start_says_why_and_has_its_code() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str, mode: u32| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let plain = write("plain", "#!/bin/sh\n", 0o644);
    let no_format = write("no-format", "echo hello\n", 0o755);
    let no_interpreter = write("no-interpreter", "#!/no-such-directory/sh\n", 0o755);
    let code = |argv: &[&str]| spawn(spec(argv)).unwrap_err().exit_code();
    assert_eq!(code(&["/no-such-directory/x"]), 127);
    assert_eq!(code(&["herd-no-such-program"]), 127);
    assert_eq!(code(&["/etc/passwd/x"]), 127);
    assert_eq!(code(&[&plain]), 126);
    assert_eq!(code(&[&no_format]), 126);
    assert_eq!(code(&[&no_interpreter]), 126);
    assert_eq!(code(&["/"]), 126);
    assert_eq!(code(&[]), 2);

    let mut elsewhere = sh("true");
    elsewhere.cwd = "/no-such-directory".into();
    assert!(matches!(spawn(elsewhere), Err(SpawnError::Cwd { .. })));
    let log = to_file(sh("true"), Path::new("/nonexistent/log"));
    assert!(matches!(spawn(log), Err(SpawnError::LogFile { .. })));
    let mut secret = sh("true");
    secret.env.push(("TOKEN".into(), "se\0cret".into()));
    let message = spawn(secret).unwrap_err().to_string();
    assert!(
        message.contains("TOKEN") && !message.contains("cret\""),
        "{message}"
    );
}

#[tokio::test]
async fn a_program_is_looked_up_in_the_childs_own_path() {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in [("a", "x"), ("b", "#!/bin/sh\necho found\n")] {
        fs::create_dir(directory.path().join(name)).unwrap();
        let path = directory.path().join(name).join("tool");
        fs::write(&path, text).unwrap();
        // The first is not executable: the search goes on.
        let mode = if name == "b" { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut spec = spec(&["tool"]);
    spec.cwd = directory.path().to_owned();
    // Relative entries count from the child's directory.
    spec.env = vec![("PATH".into(), "/nonexistent:a:b".into())];
    assert_eq!(
        output(spec).await,
        (ProcessEnd::Exited(0), "found\n".to_owned())
    );
}

#[tokio::test]
async fn row33_a_signal_is_reported_as_such() {
    assert_eq!(
        output(sh("kill -SEGV $$")).await.0,
        ProcessEnd::Signaled(11)
    );
    assert_eq!(output(sh("exit 7")).await.0, ProcessEnd::Exited(7));
}

#[tokio::test]
async fn waiting_again_gives_the_same_answer_and_may_be_cancelled() {
    let mut child = spawn(sh("read x; exit 5")).unwrap();
    let first = child.wait().await;
    assert_eq!(first.end, ProcessEnd::Exited(5));
    assert_eq!(child.wait().await, first);

    let mut waiting = sh("read x; exit 5");
    waiting.stdin = Stdin::Pipe;
    let mut child = spawn(waiting).unwrap();
    for _ in 0..10 {
        tokio::select! {
            biased;
            _ = child.wait() => panic!("it reads"),
            () = tokio::task::yield_now() => {}
        }
    }
    rustix::io::write(child.take_stdin().unwrap(), b"\n").unwrap();
    assert_eq!(child.wait().await.end, ProcessEnd::Exited(5));
    assert!(child.signal(Signal::TERM).is_ok());
    assert!(child.signal_group(Signal::TERM).is_ok());
}

#[tokio::test]
async fn pipes_limits_and_processors_are_as_asked() {
    let mut piped = sh("cat; ulimit -Sn; ulimit -Hn; grep Cpus_allowed_list /proc/self/status >&2");
    piped.stdin = Stdin::Pipe;
    piped.stdout = Output::Pipe;
    piped.stderr = Output::Pipe;
    piped.nofile = Some((50, 60));
    piped.cpus = Some(vec![0]);
    let mut child = spawn(piped).unwrap();
    rustix::io::write(child.take_stdin().unwrap(), b"in\n").unwrap();
    child.wait().await;
    let read = |fd| std::io::read_to_string(fs::File::from(fd)).unwrap();
    assert_eq!(read(child.take_stdout().unwrap()), "in\n50\n60\n");
    assert_eq!(
        read(child.take_stderr().unwrap()),
        "Cpus_allowed_list:\t0\n"
    );

    let mut nowhere = sh("true");
    nowhere.cpus = Some(vec![1023]);
    assert!(matches!(spawn(nowhere), Err(SpawnError::Affinity { .. })));
}

#[tokio::test]
async fn log_files_are_private_and_appended_to() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    for word in ["one", "two"] {
        spawn(to_file(sh(&format!("echo {word} >&2")), &path))
            .unwrap()
            .wait()
            .await;
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[tokio::test]
async fn row20_row22_stop_ends_the_process_and_its_children() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pid");
    let mut group =
        Group::spawn_all(vec![to_file(sh("sleep 600 & echo $!; wait"), &path)]).unwrap();
    eventually("the child of the process runs", || number(&path).is_some());
    group.stop(Signal::TERM, LONG);
    let ends = ends(&mut group).await;
    assert_eq!(ends[0].1.end, ProcessEnd::Signaled(15));
    assert!(ends[0].1.stopped);
    assert!(is_gone(number(&path).unwrap()));
}

/// A shell that ignores SIGTERM and says when it does.
fn stubborn(path: &Path) -> ProcessSpec {
    to_file(sh("trap '' TERM; echo $$; sleep 600"), path)
}

#[tokio::test]
async fn row21_one_that_ignores_term_is_killed_after_the_grace() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pid");
    let mut group = Group::spawn_all(vec![stubborn(&path)]).unwrap();
    eventually("it ignores SIGTERM", || number(&path).is_some());
    let asked = Instant::now();
    group.stop(Signal::TERM, Duration::from_millis(300));
    let ends = ends(&mut group).await;
    assert_eq!(ends[0].1.end, ProcessEnd::Signaled(9));
    assert!(asked.elapsed() >= Duration::from_millis(300));
    assert!(asked.elapsed() < Duration::from_millis(300) + 5 * Duration::from_millis(500));
}

#[tokio::test]
async fn row27_d14_a_repeated_stop_kills_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..3)
        .map(|n| directory.path().join(n.to_string()))
        .collect();
    let mut group = Group::spawn_all(paths.iter().map(|path| stubborn(path)).collect()).unwrap();
    for path in &paths {
        eventually("it ignores SIGTERM", || number(path).is_some());
    }
    for _ in 0..3 {
        group.stop(Signal::TERM, LONG);
    }
    let ends = tokio::time::timeout(DEADLINE, ends(&mut group))
        .await
        .unwrap();
    assert_eq!(ends.len(), 3);
    assert!(
        ends.iter()
            .all(|(_, info)| info.end == ProcessEnd::Signaled(9) && info.stopped)
    );
    assert!(paths.iter().all(|path| is_gone(number(path).unwrap())));
}

#[tokio::test]
async fn row23_d10_leftovers_of_the_group_are_ended_however_the_leader_ended() {
    let directory = tempfile::tempdir().unwrap();
    for (name, script, code) in [
        ("a", "sleep 600 & echo $!; exit 0", 0),
        ("b", "sleep 600 & echo $!; exit 1", 1),
        // One that has to be killed.
        ("c", "trap '' TERM; sleep 600 & echo $!; exit 3", 3),
        // One whose leftover is stopped.
        ("d", "sleep 600 & kill -STOP $!; echo $!; exit 4", 4),
    ] {
        let path = directory.path().join(name);
        let mut group = Group::spawn_all(vec![to_file(sh(script), &path)]).unwrap();
        let ends = tokio::time::timeout(DEADLINE, ends(&mut group))
            .await
            .unwrap();
        assert_eq!(ends[0].1.end, ProcessEnd::Exited(code));
        assert!(!ends[0].1.stopped);
        assert!(is_gone(number(&path).unwrap()), "{script}");
        assert_eq!(group.abandoned_groups(), 0);
    }
}

#[tokio::test]
async fn the_first_failure_is_told_from_those_that_were_stopped() {
    let mut group = Group::spawn_all(vec![sh("sleep 600"), sh("exit 9"), sh("sleep 600")]).unwrap();
    let (index, info) = group.next_exit().await.unwrap();
    assert_eq!(
        (index, info.end, info.stopped),
        (1, ProcessEnd::Exited(9), false)
    );
    group.stop(Signal::TERM, LONG);
    let mut rest = ends(&mut group).await;
    rest.sort_by_key(|&(index, _)| index);
    assert_eq!(
        rest.iter().map(|&(index, _)| index).collect::<Vec<_>>(),
        [0, 2]
    );
    assert!(rest.iter().all(|(_, info)| info.stopped));
    assert!(group.next_exit().await.is_none());
}

#[tokio::test]
async fn a_stopped_process_is_ended_within_its_grace_by_term() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pid");
    let mut group = Group::spawn_all(vec![to_file(sh("echo $$; kill -STOP $$"), &path)]).unwrap();
    eventually("it is stopped", || {
        number(&path).is_some_and(|pid| state(pid.as_raw_nonzero().get()) == Some('T'))
    });
    group.stop(Signal::TERM, LONG);
    let (_, info) = tokio::time::timeout(DEADLINE, group.next_exit())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(info.end, ProcessEnd::Signaled(15));
}

#[tokio::test]
async fn a_dropped_child_or_group_leaves_nothing() {
    let child = spawn(sh("sleep 600")).unwrap();
    let pid = pid_of(&child);
    drop(child);
    assert!(is_gone(pid));
    let group = Group::spawn_all(vec![sh("sleep 600"), sh("trap '' TERM; sleep 600")]).unwrap();
    let pids = group.pids();
    drop(group);
    assert!(
        pids.iter()
            .all(|&pid| is_gone(Pid::from_raw(pid.try_into().unwrap()).unwrap()))
    );
}

#[tokio::test]
async fn sixty_four_end_each_once() {
    let mut group = Group::spawn_all((0..64).map(|n| sh(&format!("exit {n}"))).collect()).unwrap();
    let mut ends = ends(&mut group).await;
    ends.sort_by_key(|&(index, _)| index);
    let codes: Vec<_> = ends.iter().map(|(_, info)| info.end).collect();
    assert_eq!(codes, (0..64).map(ProcessEnd::Exited).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_process_group_in_our_session_is_signalled_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("child");
    let script = format!("sleep 600 & echo $! > {}; wait", path.display());
    let mut child = spawn_in_group(sh(&script)).unwrap();
    eventually("the sleeper", || number(&path).is_some());
    let sleeper = number(&path).unwrap();
    let own = Pid::from_raw(i32::try_from(child.pid()).unwrap()).unwrap();
    assert_eq!(rustix::process::getpgid(Some(sleeper)), Ok(own));
    // The session's leader may be outside this pid namespace; its number is 0 then, which rustix does not take.
    assert_eq!(
        nix::unistd::getsid(Some(nix::unistd::Pid::from_raw(own.as_raw_nonzero().get()))),
        nix::unistd::getsid(None)
    );
    child.signal_group(Signal::TERM).unwrap();
    assert_eq!(child.wait().await.end, ProcessEnd::Signaled(15));
    assert!(child.end_leftovers().await);
    eventually("the sleeper's end", || is_gone(sleeper));
}
