//! When a file is watched.

use super::*;

#[tokio::test]
async fn a_file_that_was_not_quiet_for_long_has_no_watch() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    std::fs::write(&path, "").unwrap();
    let mut follower = Follower::new();
    follower.add(FileId(1), &path);
    tokio::select! {
        biased;
        followed = follower.next() => panic!("{followed:?}"),
        () = std::future::ready(()) => {}
    }
    assert!(matches!(follower.inotify, Inotify::Unopened));
    // Quiet for long enough, as far as the follower can tell.
    let tail = follower.tails.get_mut(&FileId(1)).unwrap();
    assert!(tail.arm_at.is_some());
    tail.arm_at = Some(Instant::now());
    follower.make_ready(FileId(1));
    tokio::select! {
        biased;
        followed = follower.next() => panic!("{followed:?}"),
        () = std::future::ready(()) => {}
    }
    assert!(!matches!(follower.inotify, Inotify::Unopened));
    std::fs::write(&path, "text").unwrap();
    let Followed::Chunk { bytes, .. } = follower.next().await else {
        panic!("bytes were written")
    };
    assert_eq!(bytes, b"text");
}
