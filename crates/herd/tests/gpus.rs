//! Which GPUs there are: the environment says it, else NVIDIA's library, for which a stand-in is
//! compiled here, since no real one can be had without its devices.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod live;

use std::process::{Command, Output};

use live::{Herd, assert_code, stderr, stdout};

/// Compiles a library whose functions behave as the definitions say, beside those that are right.
fn library(herd: &Herd, definitions: &[&str]) {
    let source = herd.file(
        "nvml.c",
        r#"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifndef INIT
#define INIT return 0
#endif
#ifndef COUNT
#define COUNT 3
#endif
#ifndef TEXT
#define TEXT "GPU-%"
#endif
int nvmlInit_v2(void) { INIT; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = COUNT; return 0; }
/* The one in the middle has fallen off the bus. */
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(long)index;
    return index == 1 ? 15 : 0;
}
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    strncpy(uuid, TEXT, length);
    if (strchr(uuid, '%')) *strchr(uuid, '%') = 'a' + (long)device;
    return 0;
}
#ifndef WITHOUT_SHUTDOWN
int nvmlShutdown(void) { return 0; }
#endif
"#,
    );
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(herd.path("libnvidia-ml.so.1"))
        .arg(source)
        .args(definitions)
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", stderr(&compiled));
}

/// herd beside the library, in an environment that says nothing of GPUs.
fn herd(herd: &Herd, args: &[&str]) -> Output {
    let mut command = herd.command(args);
    for variable in [
        "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
    ] {
        command.env_remove(variable);
    }
    command
        .env("LD_LIBRARY_PATH", herd.path(""))
        .output()
        .unwrap()
}

const SHOW: [&str; 3] = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"];

fn run(of: &Herd, gpus: &str) -> Output {
    let mut args = vec!["run", "-b", "local", "--gpus", gpus, "--"];
    args.extend(SHOW);
    herd(of, &args)
}

#[test]
fn the_librarys_gpus_are_leased_and_given_to_the_ranks() {
    let of = Herd::new();
    library(&of, &[]);
    let output = run(&of, "2");
    assert_code(&output, 0);
    assert_eq!(stdout(&output), "GPU-a,GPU-c\n");
    let more = run(&of, "3");
    assert_code(&more, 2);
    assert!(
        stderr(&more).contains("asks for 3 GPUs, and local has 2"),
        "{}",
        stderr(&more)
    );
    let doctor = stdout(&herd(&of, &["doctor"]));
    let line = doctor.lines().find(|line| line.contains("gpus")).unwrap();
    assert!(line.contains('2'), "{doctor}");
}

#[test]
fn a_library_that_crashes_hangs_or_lies_is_no_library() {
    for definitions in [
        &["-DINIT=abort()"][..],
        &["-DINIT=return *(volatile int *)0"],
        &["-DINIT=for(;;)pause()"],
        &["-DINIT=return 999"],
        &["-DCOUNT=4000000000u"],
        &["-DTEXT=\"GPU-,0\""],
        &["-DWITHOUT_SHUTDOWN"],
    ] {
        let of = Herd::new();
        library(&of, definitions);
        let output = run(&of, "1");
        // What is in /dev counts then: nothing on the machines that test this.
        assert_code(&output, 2);
        let said = stderr(&output);
        assert!(said.contains("local has none"), "{definitions:?}: {said}");
    }
}

#[test]
fn nobody_asks_the_library_where_no_gpu_is_asked_for_or_the_environment_names_them() {
    let of = Herd::new();
    library(&of, &["-DINIT=for(;;)pause()"]);
    assert_code(&herd(&of, &["run", "-b", "local", "--", "true"]), 0);
    let mut args = vec!["run", "-b", "local", "--gpus", "1", "--"];
    args.extend(SHOW);
    let mut command = of.command(&args);
    command
        .env("LD_LIBRARY_PATH", of.path(""))
        .env("CUDA_VISIBLE_DEVICES", "00,0,1");
    let output = command.output().unwrap();
    assert_code(&output, 0);
    assert_eq!(stdout(&output), "0\n");
}

#[test]
fn two_names_of_one_gpu_are_one_lease() {
    let of = Herd::new();
    let mut args = vec!["run", "-b", "local", "--gpus", "2", "--"];
    args.extend(SHOW);
    let output = of
        .command(&args)
        .env("CUDA_VISIBLE_DEVICES", "0,00,000")
        .output()
        .unwrap();
    assert_code(&output, 2);
    assert!(
        stderr(&output).contains("local has 1"),
        "{}",
        stderr(&output)
    );
}
