//! Writer and reader together.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use super::*;

/// A piece and its text.
type Sample<'a> = (Piece, &'a [u8]);

fn piece(rank: u32, time_ms: u64, bytes: &[u8]) -> Sample<'_> {
    let piece = Piece {
        time_ms,
        rank,
        node: rank / 2,
        stream: if rank == HERD {
            Stream::Herd
        } else {
            Stream::Stdout
        },
        prefix_len: if bytes.starts_with(b"[") { 4 } else { 0 },
        continuation: false,
    };
    (piece, bytes)
}

fn append(writer: &mut RunLogWriter, (piece, bytes): Sample<'_>) {
    writer
        .append(&piece, |text| text.extend_from_slice(bytes))
        .unwrap();
}

fn write(dir: &Path, samples: &[Sample<'_>]) {
    let mut writer = RunLogWriter::open(dir).unwrap();
    for &sample in samples {
        append(&mut writer, sample);
    }
    writer.flush().unwrap();
}

/// All text that the filter lets through, with and without prefixes.
fn read(dir: &Path, filter: Filter) -> (String, String) {
    let mut reader = RunLogReader::open(dir, filter).unwrap().unwrap();
    let (mut text, mut bare) = (Vec::new(), Vec::new());
    while let Some(entry) = reader.read().unwrap() {
        text.extend_from_slice(entry.bytes);
        entry.strip_into(&mut bare);
    }
    (
        String::from_utf8(text).unwrap(),
        String::from_utf8(bare).unwrap(),
    )
}

fn sample(dir: &Path) {
    let (to_stdout, text) = piece(2, 30, b"[2] four\n[2] five\n");
    let to_stderr = Piece {
        stream: Stream::Stderr,
        ..to_stdout
    };
    write(
        dir,
        &[
            piece(HERD, 1, b"setup\n"),
            piece(0, 10, b"[0] one\n[0] two\n"),
            piece(1, 20, b"[1] three\n"),
            (to_stderr, text),
            piece(1, 40, b"[1] six\n"),
        ],
    );
}

#[test]
fn i7_everything_comes_back_in_order_and_prefixes_come_off() {
    let dir = tempfile::tempdir().unwrap();
    sample(dir.path());
    let (text, bare) = read(dir.path(), Filter::default());
    assert_eq!(
        text,
        fs::read_to_string(dir.path().join(DATA_NAME)).unwrap()
    );
    assert_eq!(bare, "setup\none\ntwo\nthree\nfour\nfive\nsix\n");
}

#[test]
fn filters_choose_ranks_nodes_streams_and_times() {
    let dir = tempfile::tempdir().unwrap();
    sample(dir.path());
    for (filter, want) in [
        (
            Filter {
                ranks: vec![1],
                ..Filter::default()
            },
            "three\nsix\n",
        ),
        (
            Filter {
                node: Some(1),
                ..Filter::default()
            },
            "four\nfive\n",
        ),
        (
            Filter {
                stream: Some(Stream::Stderr),
                ..Filter::default()
            },
            "four\nfive\n",
        ),
        (
            Filter {
                since_ms: Some(30),
                ..Filter::default()
            },
            "four\nfive\nsix\n",
        ),
        (
            Filter {
                grep: Some("e".into()),
                ..Filter::default()
            },
            "setup\none\nthree\nfive\n",
        ),
        (
            Filter {
                grep: Some("[1]".into()),
                ..Filter::default()
            },
            "",
        ),
    ] {
        assert_eq!(read(dir.path(), filter.clone()).1, want, "{filter:?}");
    }
}

#[test]
fn a_tail_has_exactly_so_many_lines() {
    let dir = tempfile::tempdir().unwrap();
    sample(dir.path());
    let all = ["setup", "one", "two", "three", "four", "five", "six"];
    for lines in 0..9 {
        let want: String = all[all.len().saturating_sub(lines)..]
            .iter()
            .flat_map(|line| [*line, "\n"])
            .collect();
        let filter = Filter {
            tail: Some(lines),
            ..Filter::default()
        };
        assert_eq!(read(dir.path(), filter).1, want, "{lines}");
    }
    let both = Filter {
        tail: Some(1),
        ranks: vec![0],
        ..Filter::default()
    };
    assert_eq!(read(dir.path(), both).1, "two\n");
    let found = Filter {
        tail: Some(2),
        grep: Some("e".into()),
        ..Filter::default()
    };
    assert_eq!(read(dir.path(), found).1, "three\nfive\n");
}

#[test]
fn a_tail_counts_a_last_line_without_its_end_and_lines_cut_in_two() {
    let dir = tempfile::tempdir().unwrap();
    let (begins, rest) = piece(0, 2, b"ng\n");
    let goes_on = Piece {
        continuation: true,
        prefix_len: 4,
        ..begins
    };
    write(
        dir.path(),
        &[
            piece(0, 1, b"[0] a\n[0] lo"),
            (goes_on, rest),
            piece(0, 3, b"[0] open"),
        ],
    );
    let tail = |lines| {
        read(
            dir.path(),
            Filter {
                tail: Some(lines),
                ..Filter::default()
            },
        )
        .1
    };
    assert_eq!(tail(1), "open");
    assert_eq!(tail(2), "long\nopen");
    assert_eq!(tail(3), "a\nlong\nopen");
    let grep = Filter {
        grep: Some("long".into()),
        ..Filter::default()
    };
    assert_eq!(read(dir.path(), grep).0, "[0] long\n");
}

#[test]
fn a_tail_over_many_batches_is_found_from_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = RunLogWriter::open(dir.path()).unwrap();
    for number in 0..10_000u32 {
        let line = format!("line {number}\n");
        append(&mut writer, piece(number % 3, 1, line.as_bytes()));
    }
    writer.flush().unwrap();
    let filter = Filter {
        tail: Some(5000),
        ..Filter::default()
    };
    let (text, _) = read(dir.path(), filter);
    assert_eq!(text.lines().count(), 5000);
    assert!(text.starts_with("line 5000\n") && text.ends_with("line 9999\n"));
}

#[test]
fn a_long_piece_is_split_and_joined_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut long = b"[0] ".to_vec();
    long.resize(MAX_PIECE_BYTES * 2 + 10, b'x');
    long.push(b'\n');
    write(dir.path(), &[piece(0, 1, &long)]);
    let (text, bare) = read(dir.path(), Filter::default());
    assert_eq!(text.as_bytes(), long);
    assert_eq!(bare.as_bytes(), &long[4..]);
}

#[test]
fn a_torn_index_is_tolerated_and_mended_and_loses_no_text() {
    let dir = tempfile::tempdir().unwrap();
    sample(dir.path());
    let leave = |name: &str, bytes: &[u8]| {
        let mut file = OpenOptions::new()
            .append(true)
            .open(dir.path().join(name))
            .unwrap();
        file.write_all(bytes).unwrap();
    };
    // A crash after the text and within its record.
    leave(DATA_NAME, b"orphan\n");
    leave(INDEX_NAME, &[7; 13]);
    assert!(read(dir.path(), Filter::default()).0.ends_with("six\n"));
    write(dir.path(), &[piece(0, 50, b"[0] after\n")]);
    assert!(
        read(dir.path(), Filter::default())
            .1
            .ends_with("six\norphan\nafter\n")
    );
    assert_eq!(
        fs::metadata(dir.path().join(INDEX_NAME)).unwrap().len() % 32,
        0
    );
    // Records that point nowhere are passed over.
    leave(INDEX_NAME, &[0x77; RECORD_BYTES]);
    assert!(read(dir.path(), Filter::default()).1.ends_with("after\n"));
}

#[test]
fn following_begins_before_the_log_and_ends_with_the_result() {
    let dir = tempfile::tempdir().unwrap();
    let mut follow = Follow::new(dir.path(), Filter::default());
    assert!(matches!(
        follow.next(Duration::ZERO).unwrap(),
        Followed::Idle
    ));
    let path = dir.path().to_path_buf();
    let writer = std::thread::spawn(move || {
        let mut writer = RunLogWriter::open(&path).unwrap();
        for number in 0..100 {
            append(&mut writer, piece(0, number, b"[0] line\n"));
            writer.flush().unwrap();
        }
        File::create(path.join("result.json")).unwrap();
    });
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut lines = 0;
    loop {
        assert!(Instant::now() < deadline);
        match follow.next(Duration::from_secs(5)).unwrap() {
            Followed::Entry(entry) => lines += entry.bytes.split(|b| *b == b'\n').count() - 1,
            Followed::Idle => {}
            Followed::Ended => break,
        }
    }
    writer.join().unwrap();
    assert_eq!(lines, 100);
}

#[test]
fn a_full_disk_is_named_and_what_was_taken_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", dir.path().join(DATA_NAME)).unwrap();
    let mut writer = RunLogWriter::open(dir.path()).unwrap();
    append(&mut writer, piece(0, 1, b"[0] kept\n"));
    match writer.flush() {
        Err(crate::JobDirError::DiskFull { path, .. }) => assert!(path.ends_with(DATA_NAME)),
        other => panic!("{other:?}"),
    }
    assert!(writer.is_dirty());
    assert_eq!(fs::metadata(dir.path().join(INDEX_NAME)).unwrap().len(), 0);
}
