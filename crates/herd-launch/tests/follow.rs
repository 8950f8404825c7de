//! Following real files that real threads write.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use herd_launch::follow::{CHUNK_MAX, FileId, Followed, Follower};

const DEADLINE: Duration = Duration::from_secs(20);

async fn next(follower: &mut Follower) -> Followed {
    tokio::time::timeout(DEADLINE, follower.next())
        .await
        .expect("something is followed")
}

fn files(directory: &Path, count: u64) -> Vec<(FileId, PathBuf)> {
    (0..count)
        .map(|n| (FileId(n), directory.join(n.to_string())))
        .collect()
}

/// Follows until every file is finished; checks that offsets have no gap and no overlap.
async fn collect(
    follower: &mut Follower,
    files: &[(FileId, PathBuf)],
    writers: Vec<thread::JoinHandle<()>>,
) -> BTreeMap<FileId, Vec<u8>> {
    let mut writers = Some(writers);
    let mut bytes: BTreeMap<FileId, Vec<u8>> = files.iter().map(|(id, _)| (*id, vec![])).collect();
    let mut finished = 0;
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    let started = Instant::now();
    while finished < files.len() {
        assert!(started.elapsed() < 3 * DEADLINE);
        tokio::select! {
            followed = follower.next() => match followed {
                Followed::Chunk { id, offset, bytes: chunk } => {
                    let have = bytes.get_mut(&id).unwrap();
                    assert_eq!(offset, have.len() as u64);
                    assert!(!chunk.is_empty() && chunk.len() <= CHUNK_MAX);
                    have.extend_from_slice(&chunk);
                }
                // Somebody else's part: read what was told.
                Followed::Grown { id, offset, length } => {
                    let have = bytes.get_mut(&id).unwrap();
                    assert_eq!(offset, have.len() as u64);
                    assert!(length > offset && length - offset <= CHUNK_MAX as u64);
                    let path = &files.iter().find(|(file, _)| *file == id).unwrap().1;
                    have.resize(usize::try_from(length).unwrap(), 0);
                    let from = usize::try_from(offset).unwrap();
                    let file = File::open(path).unwrap();
                    file.read_exact_at(&mut have[from..], offset).unwrap();
                }
                Followed::Finished { id, final_offset } => {
                    assert_eq!(final_offset, bytes[&id].len() as u64);
                    finished += 1;
                }
                Followed::Failed { error, .. } => panic!("{error}"),
                Followed::Truncated { id, .. } => panic!("{id:?} was truncated"),
            },
            _ = ticks.tick(), if writers.is_some() => {
                if writers.as_ref().unwrap().iter().all(thread::JoinHandle::is_finished) {
                    for writer in writers.take().unwrap() {
                        writer.join().unwrap();
                    }
                    follower.finish_all();
                }
            }
        }
    }
    assert!(follower.is_empty());
    bytes
}

fn append(path: &Path) -> File {
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .unwrap()
}

#[tokio::test]
async fn i7_four_busy_writers_are_followed_to_the_byte() {
    four_busy_writers(Follower::new()).await;
}

#[tokio::test]
async fn i7_the_lengths_that_are_told_lead_to_every_byte() {
    four_busy_writers(Follower::of_lengths()).await;
}

async fn four_busy_writers(mut follower: Follower) {
    let directory = tempfile::tempdir().unwrap();
    let files = files(directory.path(), 4);
    for (id, path) in &files {
        follower.add(*id, path);
    }
    let writers = files
        .iter()
        .map(|(id, path)| {
            let (id, path) = (*id, path.clone());
            thread::spawn(move || {
                let mut file = append(&path);
                for line in 0..50_000 {
                    file.write_all(format!("rank {} line {line}\n", id.0).as_bytes())
                        .unwrap();
                }
            })
        })
        .collect();
    let bytes = collect(&mut follower, &files, writers).await;
    for (id, path) in &files {
        assert!(bytes[id] == fs::read(path).unwrap(), "{id:?}");
    }
}

#[tokio::test]
async fn i7_sixty_four_files_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let files = files(directory.path(), 64);
    let mut follower = Follower::new();
    for (id, path) in &files {
        follower.add(*id, path);
    }
    let paths: Vec<_> = files.iter().map(|(_, path)| path.clone()).collect();
    let writer = thread::spawn(move || {
        let mut open: Vec<_> = paths.iter().map(|path| append(path)).collect();
        for round in 0..500 {
            for (n, file) in open.iter_mut().enumerate() {
                writeln!(file, "{n} {round}").unwrap();
            }
        }
    });
    let bytes = collect(&mut follower, &files, vec![writer]).await;
    for (id, path) in &files {
        assert!(bytes[id] == fs::read(path).unwrap(), "{id:?}");
    }
}

#[tokio::test]
async fn row17_a_file_that_comes_late_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("late");
    let mut follower = Follower::new();
    follower.add(FileId(1), &path);
    assert!(
        tokio::time::timeout(Duration::from_millis(1), follower.next())
            .await
            .is_err()
    );
    fs::write(&path, "first\n").unwrap();
    assert!(
        matches!(next(&mut follower).await, Followed::Chunk { offset: 0, bytes, .. } if bytes == b"first\n")
    );
    // At its end, with a watch set: one write is one chunk.
    for n in 0..20_u64 {
        append(&path).write_all(b"more\n").unwrap();
        let Followed::Chunk { offset, bytes, .. } = next(&mut follower).await else {
            panic!()
        };
        assert_eq!((offset, &bytes[..]), (6 + 5 * n, &b"more\n"[..]));
    }
    follower.finish(FileId(1));
    assert!(matches!(
        next(&mut follower).await,
        Followed::Finished {
            final_offset: 106,
            ..
        }
    ));
}

#[tokio::test]
async fn a_quiet_file_is_noticed_through_its_watch() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("quiet");
    fs::write(&path, "").unwrap();
    let mut follower = Follower::new();
    follower.add(FileId(1), &path);
    assert!(
        tokio::time::timeout(Duration::from_millis(20), follower.next())
            .await
            .is_err()
    );
    let written = Instant::now();
    append(&path).write_all(b"x").unwrap();
    assert!(matches!(next(&mut follower).await, Followed::Chunk { .. }));
    // Row 14 allows 0.3 s; five times that.
    assert!(written.elapsed() < Duration::from_millis(1500));
}

#[tokio::test]
async fn two_hundred_megabytes_without_a_newline_come_in_bounded_pieces() {
    const SIZE: u64 = 200 * 1024 * 1024;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("large");
    let file = File::create(&path).unwrap();
    file.set_len(SIZE).unwrap();
    for at in (0..SIZE).step_by(1 << 20) {
        file.write_all_at(&at.to_le_bytes(), at).unwrap();
    }
    let mut follower = Follower::new();
    follower.add(FileId(1), &path);
    follower.finish(FileId(1));
    let mut at = 0;
    loop {
        match next(&mut follower).await {
            Followed::Chunk { offset, bytes, .. } => {
                assert_eq!(offset, at);
                assert!(bytes.capacity() <= 2 * CHUNK_MAX);
                if offset % (1 << 20) == 0 {
                    assert_eq!(bytes[..8], offset.to_le_bytes());
                }
                at += bytes.len() as u64;
            }
            Followed::Finished { final_offset, .. } => break assert_eq!(final_offset, SIZE),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(at, SIZE);
}

#[tokio::test]
async fn files_take_turns() {
    let directory = tempfile::tempdir().unwrap();
    let files = files(directory.path(), 3);
    let mut follower = Follower::new();
    for (id, path) in &files {
        fs::write(path, vec![b'x'; 2 * CHUNK_MAX]).unwrap();
        follower.add(*id, path);
    }
    let mut order = Vec::new();
    for _ in 0..6 {
        let Followed::Chunk { id, .. } = next(&mut follower).await else {
            panic!()
        };
        order.push(id.0);
    }
    assert_eq!(order, [0, 1, 2, 0, 1, 2]);
}

#[tokio::test]
async fn a_gap_can_be_fetched_again_and_two_may_follow_one_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    fs::write(&path, "0123456789").unwrap();
    let mut follower = Follower::new();
    follower.add_at(FileId(1), &path, 4);
    follower.add(FileId(2), &path);
    let mut texts = BTreeMap::new();
    for _ in 0..2 {
        let Followed::Chunk { id, offset, bytes } = next(&mut follower).await else {
            panic!()
        };
        texts.insert(id, (offset, bytes));
    }
    assert_eq!(texts[&FileId(1)], (4, b"456789".to_vec()));
    assert_eq!(texts[&FileId(2)], (0, b"0123456789".to_vec()));
    // Both are at the end now and share a watch.
    assert!(
        tokio::time::timeout(Duration::from_millis(20), follower.next())
            .await
            .is_err()
    );
    append(&path).write_all(b"!").unwrap();
    for _ in 0..2 {
        assert!(matches!(
            next(&mut follower).await,
            Followed::Chunk { offset: 10, .. }
        ));
    }
    follower.remove(FileId(2));
    follower.remove(FileId(2));
    append(&path).write_all(b"?").unwrap();
    assert!(matches!(
        next(&mut follower).await,
        Followed::Chunk {
            id: FileId(1),
            offset: 11,
            ..
        }
    ));
}

#[tokio::test]
async fn what_is_no_file_or_never_was_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let mut follower = Follower::new();
    follower.add_at(FileId(1), directory.path().join("never"), 7);
    follower.finish(FileId(1));
    assert!(matches!(
        next(&mut follower).await,
        Followed::Finished {
            final_offset: 7,
            ..
        }
    ));
    follower.add(FileId(2), directory.path());
    assert!(matches!(
        next(&mut follower).await,
        Followed::Failed { id: FileId(2), .. }
    ));
    assert!(follower.is_empty());
}

#[tokio::test]
async fn thousands_of_short_files_pass_through() {
    let directory = tempfile::tempdir().unwrap();
    let mut follower = Follower::new();
    for (id, path) in files(directory.path(), 3000) {
        fs::write(&path, id.0.to_string()).unwrap();
        follower.add(id, &path);
        follower.finish(id);
        assert!(matches!(next(&mut follower).await, Followed::Chunk { .. }));
        assert!(matches!(
            next(&mut follower).await,
            Followed::Finished { .. }
        ));
    }
}

#[tokio::test]
async fn a_long_backlog_does_not_keep_a_quiet_file_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let (quiet, large) = (
        directory.path().join("quiet"),
        directory.path().join("large"),
    );
    fs::write(&quiet, "").unwrap();
    let mut follower = Follower::new();
    follower.add(FileId(1), &quiet);
    assert!(
        tokio::time::timeout(Duration::from_millis(20), follower.next())
            .await
            .is_err()
    );
    let chunks = 2000;
    File::create(&large)
        .unwrap()
        .set_len(chunks * CHUNK_MAX as u64)
        .unwrap();
    follower.add(FileId(2), &large);
    append(&quiet).write_all(b"now").unwrap();
    for _ in 0..chunks {
        if let Followed::Chunk { id: FileId(1), .. } = next(&mut follower).await {
            return;
        }
    }
    panic!("the quiet file came last");
}

/// What is shown of a file until so many bytes were shown, and how often it was truncated.
async fn shown(follower: &mut Follower, path: &Path, wanted: usize) -> (Vec<u8>, u32) {
    let (mut all, mut truncations) = (Vec::new(), 0);
    while all.len() < wanted {
        match next(follower).await {
            Followed::Chunk { bytes, .. } => all.extend(bytes),
            Followed::Grown { offset, length, .. } => {
                let mut bytes = vec![0; usize::try_from(length - offset).unwrap()];
                File::open(path)
                    .unwrap()
                    .read_exact_at(&mut bytes, offset)
                    .unwrap();
                all.extend(bytes);
            }
            Followed::Truncated { .. } => truncations += 1,
            other => panic!("{other:?}"),
        }
    }
    (all, truncations)
}

/// Whether a file was quiet for long enough to have a watch matters to how its end is looked at.
async fn quiet_for(follower: &mut Follower, time: Duration) {
    if let Ok(followed) = tokio::time::timeout(time, follower.next()).await {
        panic!("{followed:?}");
    }
}

async fn a_truncated_file_begins_again(mut follower: Follower) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    fs::write(&path, "").unwrap();
    follower.add(FileId(1), &path);
    let long = |letter: &str| letter.repeat(3000);
    // As `> /dev/stdout` does, to less, to as much and to more than before, and with the same words.
    let texts = [
        "important\n".to_owned(),
        "done\n".to_owned(),
        "DONE\n".to_owned(),
        "DONE\n".to_owned(),
        "done, and more\n".to_owned(),
        long("a"),
        "end\n".to_owned(),
        long("b"),
        long("c"),
        long("d") + "e",
        "tick\n".to_owned(),
        "tick\n".to_owned(),
    ];
    for pause in [Duration::from_millis(20), Duration::from_millis(200)] {
        for (n, text) in texts.iter().enumerate() {
            fs::write(&path, text).unwrap();
            let (bytes, truncations) = shown(&mut follower, &path, text.len()).await;
            assert_eq!(String::from_utf8(bytes).unwrap(), *text, "{n}");
            assert!(truncations == 1 || n == 0, "{n}: {truncations}");
            // What the rank appends through its own descriptor goes on from there.
            append(&path).write_all(b"more\n").unwrap();
            let (bytes, truncations) = shown(&mut follower, &path, 5).await;
            assert_eq!((&bytes[..], truncations), (&b"more\n"[..], 0), "{n}");
            quiet_for(&mut follower, pause).await;
            // The next text is to meet each length.
            File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_len(0)
                .unwrap();
            assert!(matches!(
                next(&mut follower).await,
                Followed::Truncated { .. }
            ));
            fs::write(&path, text).unwrap();
            assert_eq!(
                shown(&mut follower, &path, text.len()).await.0,
                text.as_bytes()
            );
            quiet_for(&mut follower, pause).await;
        }
    }
    // A part that is kept is shown again: it cannot be told from what is written anew.
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(2).unwrap();
    assert_eq!(shown(&mut follower, &path, 2).await, (b"ti".to_vec(), 1));
    quiet_for(&mut follower, Duration::from_millis(200)).await;
    // Truncated as the last thing, with the same words.
    fs::write(&path, "ti").unwrap();
    follower.finish(FileId(1));
    assert_eq!(shown(&mut follower, &path, 2).await, (b"ti".to_vec(), 1));
    assert!(matches!(
        next(&mut follower).await,
        Followed::Finished {
            final_offset: 2,
            ..
        }
    ));
}

#[tokio::test]
async fn i7_a_truncated_file_begins_again() {
    a_truncated_file_begins_again(Follower::new()).await;
}

#[tokio::test]
async fn i7_a_truncated_file_begins_again_where_lengths_are_told() {
    a_truncated_file_begins_again(Follower::of_lengths()).await;
}
