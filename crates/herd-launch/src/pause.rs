//! Stopping everything below a process for a while, and letting it go on. Whatever was stopped
//! already stays stopped afterwards: it was somebody else's wish.

use std::collections::BTreeSet;

use rustix::process::{Pid, Signal};

use crate::tree;

/// Looks at the tree for processes that were started during the last look. What starts faster than
/// it can be stopped for this long is left alone.
const LOOKS: usize = 20;

/// The processes that a pause has stopped.
#[derive(Debug, Default)]
pub struct Pause {
    stopped: BTreeSet<i32>,
}

impl Pause {
    /// Stops every descendant of `root`, and not `root`; again, those that have come since. Parents
    /// come first, so that none sees its child stopped and acts on it.
    pub fn stop_below(&mut self, root: Pid) {
        for _look in 0..LOOKS {
            let mut found = false;
            for pid in tree::running_descendants(root) {
                // A signal that is on its way shows in no state yet.
                if self.stopped.insert(pid.as_raw_nonzero().get()) {
                    let _gone = rustix::process::kill_process(pid, Signal::STOP);
                    found = true;
                }
            }
            if !found {
                return;
            }
        }
    }

    /// Lets those go on that were stopped and are still below `root`, children first. The number of
    /// one that was killed meanwhile may be another's by now, but none that is below `root` and
    /// stopped by somebody else: those were never counted.
    pub fn go_on(self, root: Pid) {
        for pid in tree::descendants(root).into_iter().rev() {
            if self.stopped.contains(&pid.as_raw_nonzero().get()) {
                let _gone = rustix::process::kill_process(pid, Signal::CONT);
            }
        }
    }
}
