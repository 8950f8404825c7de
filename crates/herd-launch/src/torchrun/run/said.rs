//! What is said of other nodes, and what it means for this one. Pure.

use herd_core::exit;

use super::Status;
use crate::rendezvous::{Change, Finish};
use crate::torchrun::flags::ExitRule;

/// What happens here after a change at other nodes, once the workers of this one have ended.
#[derive(Debug)]
pub(super) enum Next {
    /// They start again, with whoever is there; not counted as a restart.
    Again(String),
    /// The job is over.
    Over(Status),
}

/// `can_go_on`: the other nodes are enough without one that is gone, or may wait for another one.
pub(super) fn next(change: &Change, can_go_on: bool, rule: ExitRule) -> Next {
    let over = |code: u8, what: String| {
        Next::Over(Status {
            code: match rule {
                ExitRule::One => 1,
                ExitRule::Worker => code,
            },
            report: format!(
                "herd launch: {what}; the workers here were ended\n\
                 hint: what that node's own launcher says tells more\n"
            ),
        })
    };
    match change {
        Change::NodesWaiting { nodes } => Next::Again(format!(
            "{nodes} more {} here; all workers start again",
            if *nodes == 1 { "node is" } else { "nodes are" }
        )),
        Change::PeerRestarts { node, reason } => {
            Next::Again(format!("{node}: {reason}; all workers start again"))
        }
        Change::PeerGone { node, reason } if can_go_on => {
            Next::Again(format!("{node} is gone: {reason}; the others start again"))
        }
        Change::PeerGone { node, reason } => {
            over(exit::HERD_FAILED, format!("{node} is gone: {reason}"))
        }
        // Its own launcher tells the code.
        Change::PeerFailed { node, reason } => over(1, format!("{node} failed: {reason}")),
        Change::Closed { reason } => over(
            exit::HERD_FAILED,
            format!("the rendezvous is closed: {reason}"),
        ),
        Change::HostLost { reason } => over(
            exit::HERD_FAILED,
            format!("lost the launcher that serves the rendezvous: {reason}"),
        ),
    }
}

/// What to say after the workers here have ended well, of those at other nodes.
pub(super) fn after_finish(finish: &Finish) -> Option<String> {
    let what = match finish {
        Finish::Together => return None,
        Finish::TimedOut { after } => {
            format!("other nodes are not done after {} s", after.as_secs())
        }
        Finish::Disturbed(Change::PeerGone { node, reason }) => {
            format!("{node} is gone: {reason}")
        }
        Finish::Disturbed(Change::PeerFailed { node, reason }) => {
            format!("{node} failed: {reason}")
        }
        Finish::Disturbed(Change::PeerRestarts { node, reason }) => {
            format!("{node}: {reason}; it starts again without this node")
        }
        Finish::Disturbed(Change::NodesWaiting { .. }) => return None,
        Finish::Disturbed(Change::Closed { reason }) => {
            format!("the rendezvous is closed: {reason}")
        }
        Finish::Disturbed(Change::HostLost { reason }) => {
            format!("lost the launcher that serves the rendezvous: {reason}")
        }
    };
    Some(format!(
        "warning: the workers here have ended well, but {what}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_gone_ends_the_job_only_where_it_is_needed() {
        let gone = Change::PeerGone {
            node: "node 1 (h1, pid 7)".into(),
            reason: "its connection broke".into(),
        };
        assert!(matches!(
            next(&gone, true, ExitRule::One),
            Next::Again(text) if text.contains("node 1 (h1, pid 7) is gone")
        ));
        for (rule, expected) in [(ExitRule::One, 1), (ExitRule::Worker, 125)] {
            let Next::Over(status) = next(&gone, false, rule) else {
                panic!("it goes on");
            };
            assert_eq!(status.code, expected);
            assert!(status.report.contains("node 1 (h1, pid 7)"));
        }
    }

    #[test]
    fn who_is_done_is_told_of_what_others_met() {
        assert_eq!(after_finish(&Finish::Together), None);
        let failed = Finish::Disturbed(Change::PeerFailed {
            node: "node 1 (h1, pid 7)".into(),
            reason: "rank 3 exited with code 1".into(),
        });
        let text = after_finish(&failed).unwrap();
        assert!(text.contains("rank 3 exited with code 1"), "{text}");
    }
}
