//! A full disk under the job directory: the ranks' own error, not the job's end. The disk is a small
//! file system of memory in a mount namespace, which root may make.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod live;

use std::fs;
use std::process::{Command, Output};

use live::{Herd, assert_code, stderr, stdout};

/// Runs herd with a home on a disk of `size`, then what `afterwards` says while that still exists.
fn on_a_small_disk(herd: &Herd, size: &str, args: &[&str], afterwards: &str) -> Output {
    fs::create_dir_all(herd.path("home")).unwrap();
    let script = format!(
        "mount -t tmpfs -o mode=0700,size={size} tmpfs home || exit 99\n\
         \"$@\"; code=$?\n{afterwards}\nexit $code\n"
    );
    let wrapper = ["unshare", "--mount", "sh", "-c", &script, "sh"];
    let mut command = herd.under(&wrapper, args);
    // Whoever is not root makes a user namespace for it.
    if !nix::unistd::geteuid().is_root() {
        command = rooted(&command);
    }
    command.output().unwrap()
}

/// Runs a shell script with a home on a disk of `size`, where `herd` is the program.
fn script_on_a_small_disk(herd: &Herd, size: &str, script: &str) -> Output {
    fs::create_dir_all(herd.path("home")).unwrap();
    let script = format!(
        "mount -t tmpfs -o mode=0700,size={size} tmpfs home || exit 99\n\
         program=$1; herd() {{ \"$program\" \"$@\"; }}\n{script}\n"
    );
    let mut command = herd.under(&["unshare", "--mount", "sh", "-c", &script, "sh"], &[]);
    if !nix::unistd::geteuid().is_root() {
        command = rooted(&command);
    }
    command.output().unwrap()
}

fn rooted(command: &Command) -> Command {
    let mut rooted = Command::new("unshare");
    rooted
        .args(["--user", "--map-root-user"])
        .args(command.get_args());
    herd_testing::surroundings::copy(command, &mut rooted);
    rooted.current_dir(command.get_current_dir().unwrap());
    rooted
}

#[test]
fn i8_a_full_disk_is_the_ranks_error_and_the_code_reaches_the_caller() {
    let herd = Herd::new();
    let script = "if [ $HERD_RANK = 0 ]; then\n\
                  head -c 8000000 /dev/zero 2>/dev/null || { touch full; exit 5; }\n\
                  else until [ -e full ]; do sleep 0.1; done; echo late; sleep 1; fi\n";
    let output = on_a_small_disk(
        &herd,
        "4m",
        &["run", "-N", "2", "--", "sh", "-c", script],
        "cp home/jobs/*/result.json home/jobs/*/attempts/1/end .; ls home/jobs/* > files",
    );
    assert_code(&output, 5);
    assert!(herd.path("full").exists(), "a rank has met the full disk");
    let text = stderr(&output);
    assert_eq!(text.matches("no space left").count(), 1, "{text}");
    // The last records find the space that was held back for them.
    let result = fs::read_to_string(herd.path("result.json")).unwrap();
    assert!(result.contains("\"exit_code\":5"), "{result}");
    assert!(
        fs::read_to_string(herd.path("end"))
            .unwrap()
            .contains("rank-failed")
    );
    let files = fs::read_to_string(herd.path("files")).unwrap();
    assert!(!files.contains("secrets.json"), "{files}");
}

#[test]
fn ranks_that_do_not_fill_the_disk_themselves_go_on_to_their_end() {
    let herd = Herd::new();
    let script = "if [ $HERD_RANK = 0 ]; then head -c 8000000 /dev/zero > home/big 2>/dev/null; \
                  touch full; fi\n\
                  until [ -e full ]; do sleep 0.1; done\n\
                  for i in 1 2 3; do echo $i; sleep 0.3; done; touch end.$HERD_RANK; exit 0\n";
    let output = on_a_small_disk(
        &herd,
        "4m",
        &["run", "-N", "2", "--", "sh", "-c", script],
        "",
    );
    assert_code(&output, 0);
    assert!(herd.path("end.0").exists() && herd.path("end.1").exists());
    let text = stderr(&output);
    // Whether herd itself had anything to write that no longer fitted is chance; it says so once.
    assert!(text.matches("the job goes on").count() <= 1, "{text}");
}

#[test]
fn a_disk_that_is_full_from_the_start_is_said_before_anything_runs() {
    let herd = Herd::new();
    let marker = herd.path("marker");
    let output = on_a_small_disk(
        &herd,
        "4k",
        &["run", "--", "touch", marker.to_str().unwrap()],
        "",
    );
    assert_code(&output, 125);
    let text = format!("{}{}", stdout(&output), stderr(&output));
    assert!(text.contains("space"), "{text}");
    assert!(!marker.exists());
}

#[test]
fn a_disk_without_room_for_a_jobs_records_takes_no_job() {
    for command in ["run", "submit"] {
        let herd = Herd::new();
        let output = script_on_a_small_disk(
            &herd,
            "48k",
            &format!("herd {command} -- touch marker; echo code=$?; ls home/jobs"),
        );
        let text = stderr(&output);
        assert_eq!(stdout(&output), "code=125\n", "{text}");
        assert!(text.contains("no space left to keep the records"), "{text}");
        let hint = text.lines().last().unwrap();
        assert!(
            hint.starts_with("hint: ") && hint.contains("herd gc"),
            "{text}"
        );
        assert!(!herd.path("marker").exists());
    }
}

#[test]
fn gc_makes_room_on_a_full_disk() {
    let herd = Herd::new();
    let output = script_on_a_small_disk(
        &herd,
        "1m",
        "herd run -- sh -c 'head -c 300000 /dev/zero' > /dev/null || exit 98\n\
         cat /dev/zero > home/big\n\
         herd submit -- true && exit 97\n\
         herd gc --older-than 0s --output json > removed || exit 96\n\
         rm home/big\n\
         herd run -- true || exit 95",
    );
    assert_code(&output, 0);
    let removed = fs::read_to_string(herd.path("removed")).unwrap();
    assert_eq!(removed.matches("\"removed\": true").count(), 1, "{removed}");
}

#[test]
fn i8_a_job_whose_end_nobody_can_write_has_its_code_and_can_be_removed() {
    let herd = Herd::new();
    // The rank kills its driver when something else has filled the disk, and goes on doing so.
    herd.file(
        "job.sh",
        "touch fill; until [ -e full ]; do sleep 0.1; done\n\
         kill -KILL $(cut -d ' ' -f 4 /proc/$PPID/stat); sleep 600\n",
    );
    let output = script_on_a_small_disk(
        &herd,
        "1m",
        "(until [ -e fill ]; do sleep 0.1; done; while [ ! -e stop ]; do\n\
             cat /dev/zero >> home/big; touch full; done) > /dev/null 2>&1 &\n\
         herd run --name lost -- sh job.sh; echo code=$?\n\
         herd wait lost; echo code=$?\n\
         herd status lost > status; herd ls > list\n\
         herd gc --older-than 0s --output json > removed; echo code=$?\n\
         touch stop; wait",
    );
    let (said, text) = (stdout(&output), stderr(&output));
    assert_eq!(said, "code=125\ncode=125\ncode=0\n", "{text}");
    let removed = fs::read_to_string(herd.path("removed")).unwrap();
    assert_eq!(removed.matches("\"removed\": true").count(), 1, "{removed}");
}
