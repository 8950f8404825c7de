//! A process without a pidfd.

use super::*;
use crate::spawn::{ProcessSpec, spawn};

#[tokio::test]
async fn without_a_pidfd_the_end_is_seen_as_well() {
    let argv = ["/bin/sh", "-c", "kill -STOP $$; exit 3"]
        .map(Into::into)
        .to_vec();
    let mut child = spawn(ProcessSpec::new(argv, Vec::new(), "/")).unwrap();
    child.watch = Watch::Idle(None);
    let waited = tokio::time::timeout(POLL * 2, child.wait()).await;
    assert!(waited.is_err());
    // It may not have stopped itself yet: a CONT before that is lost.
    let ended = tokio::time::timeout(Duration::from_secs(10), async {
        loop {
            child.signal(Signal::CONT).unwrap();
            if let Ok(info) = tokio::time::timeout(POLL * 2, child.wait()).await {
                break info;
            }
        }
    });
    assert_eq!(ended.await.unwrap().end, ProcessEnd::Exited(3));
}
