//! How long a login shell takes: Slurm starts one for each job, and each command that is text is another.

use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::commands::doctor::{Finding, Verdict};

/// Longer ones are felt in each job.
const SOON: Duration = Duration::from_secs(1);
/// After that nobody waits for it here; it ends by itself.
const BOUND: Duration = Duration::from_secs(10);

const REMEDY: &str = "each job and each rank whose command is text waits for one: `bash -lxc true` shows for what. \
     `pyenv init - --no-rehash` in a profile takes no lock";

/// Starts one here, where profiles are mostly those of the nodes.
pub(super) fn shell() -> Finding {
    let begun = Instant::now();
    let started = Command::new("bash")
        .args(["-lc", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            return Finding::new("login", Verdict::Warn, format!("bash: {error}"))
                .remedy("commands that are text run in bash: install it on the nodes");
        }
    };
    let (ended, end) = mpsc::channel();
    let waiting = thread::spawn(move || {
        // Nobody listens any more after the bound.
        let _late = ended.send(child.wait().is_ok());
    });
    let took = end.recv_timeout(BOUND).map(|_ended| begun.elapsed());
    drop(waiting);
    judge(took.ok())
}

fn judge(took: Option<Duration>) -> Finding {
    match took {
        Some(took) if took < SOON => Finding::ok(
            "login",
            format!("a login shell takes {} ms", took.as_millis()),
        ),
        Some(took) => {
            let detail = format!("a login shell takes {:.1} s", took.as_secs_f64());
            Finding::new("login", Verdict::Warn, detail).remedy(REMEDY)
        }
        None => {
            let detail = format!("a login shell takes more than {} s", BOUND.as_secs());
            Finding::new("login", Verdict::Warn, detail).remedy(REMEDY)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_jobs_would_wait_for_is_a_warning_with_a_remedy() {
        let soon = judge(Some(Duration::from_millis(20)));
        assert!(soon.detail.contains("20 ms") && soon.remedy.is_none());
        for slow in [Some(Duration::from_secs(3)), None] {
            let slow = judge(slow);
            assert!(slow.verdict == Verdict::Warn && slow.remedy.is_some());
        }
    }
}
