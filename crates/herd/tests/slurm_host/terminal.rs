//! A terminal of the laptop in a job of the cluster.

use herd_testing::terminal::{CTRL_C, Terminal};

use crate::laptop::Laptop;

#[test]
fn exec_with_a_terminal_is_one_in_the_job_as_well() {
    let laptop = Laptop::new();
    let job = laptop.submit(&["--", "sleep", "600"]);
    laptop.await_state(&job, "RUNNING");
    let script = "n=; trap 'n=interrupted' INT; echo ready; read word\n\
                  while [ -z \"$n\" ]; do sleep 0.1; done; echo $n; stty size; exit 9";
    let mut exec = laptop.herd(&["exec", &job, "--", "sh", "-c", script]);
    // What makes a terminal is not in the laptop's own.
    let path = format!("{}:/usr/bin:/bin", laptop.path("bin").display());
    let mut terminal = Terminal::start(exec.env("PATH", path));
    terminal.expect("ready");
    // The job's terminal shows what is typed, once, and makes a signal of a key.
    terminal.write("word\n");
    terminal.expect("word\r\n");
    terminal.write(CTRL_C);
    terminal.expect("interrupted");
    let (status, screen) = terminal.wait();
    assert!(screen.contains("50 200"), "{screen}");
    assert_eq!(screen.matches("word").count(), 1, "{screen}");
    assert_eq!(status.code(), Some(9), "{screen}");
    assert_eq!(laptop.ask(&["cancel", &job]).code, 0);
}
