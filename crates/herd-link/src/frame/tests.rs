//! Frames as bytes, and bytes that are no frames.

use super::*;

pub(crate) fn examples() -> Vec<Frame> {
    let log = |task, bytes: &[u8]| {
        let bytes = bytes.to_vec();
        Frame::Log(LogFrame {
            rank: 7,
            stream: 2,
            task,
            offset: 1 << 40,
            bytes,
        })
    };
    let stdio = |bytes: &[u8]| {
        let bytes = bytes.to_vec();
        Frame::Stdio(StdioFrame {
            session: 9,
            stream: 1,
            bytes,
        })
    };
    vec![
        Frame::Control(b"{\"type\":\"hello\"}".to_vec()),
        Frame::Control(Vec::new()),
        log(None, b"line\n\0\xff"),
        log(Some(0), b""),
        log(Some(u32::MAX), b"x"),
        stdio(b"typed"),
        stdio(b""),
        Frame::Resume(Resume {
            token: Token([7; 16]),
            received: 1 << 33,
        }),
        Frame::Received(u64::MAX),
    ]
}

pub(crate) fn encoded(frame: &Frame) -> Vec<u8> {
    let (head, payload) = frame.encode().unwrap();
    [head.as_bytes(), payload].concat()
}

/// A small fixed generator: the same bytes in every run.
pub(crate) fn pseudo_random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

#[test]
fn frames_come_back() {
    for frame in examples() {
        let mut bytes = encoded(&frame);
        let length = bytes.len();
        for cut in 0..length {
            assert_eq!(decode(&bytes[..cut]).unwrap(), Decoded::Incomplete);
        }
        bytes.extend_from_slice(b"more");
        assert_eq!(decode(&bytes).unwrap(), Decoded::Frame(frame, length));
    }
}

#[test]
fn the_bytes_are_those_documented() {
    let frame = Frame::Log(LogFrame {
        rank: 1,
        stream: 2,
        task: Some(3),
        offset: 4,
        bytes: vec![5],
    });
    let expected = [
        0, 0, 0, 20, 2, 0, 0, 0, 1, 2, 1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 5,
    ];
    assert_eq!(encoded(&frame), expected);
    let frame = Frame::Stdio(StdioFrame {
        session: 1,
        stream: 2,
        bytes: vec![3],
    });
    assert_eq!(encoded(&frame), [0, 0, 0, 7, 3, 0, 0, 0, 1, 2, 3]);
    assert_eq!(encoded(&Frame::Control(vec![9])), [0, 0, 0, 2, 1, 9]);
}

#[test]
fn lengths_out_of_bounds_are_refused_before_the_body() {
    for stream in [[0, 0, 0, 0], [0, 0x80, 0, 1], [0xff; 4]] {
        assert!(matches!(
            decode(&stream),
            Err(LinkError::FrameLength { .. })
        ));
    }
    assert_eq!(decode(&[0, 0x80, 0, 0]).unwrap(), Decoded::Incomplete);
    let large = Frame::Control(vec![0; MAX_FRAME]);
    assert!(
        matches!(large.encode(), Err(LinkError::FrameLength { length }) if length == MAX_FRAME + 1)
    );
}

#[test]
fn bodies_too_short_or_wrong_are_malformed() {
    for kind in [KIND_LOG, KIND_STDIO] {
        assert!(matches!(
            decode(&[0, 0, 0, 2, kind, 0]),
            Err(LinkError::Malformed { .. })
        ));
    }
    assert!(matches!(
        decode(&[0, 0, 0, 2, KIND_CLOSE, 0]),
        Err(LinkError::Malformed { .. })
    ));
    let mut log = encoded(&examples()[2]);
    log[LENGTH_BYTES + 6] = 2;
    assert!(matches!(
        decode(&log),
        Err(LinkError::Malformed { kind: "log", .. })
    ));
}

#[test]
fn close_and_unknown_kinds_are_told_apart() {
    assert_eq!(decode(&CLOSE).unwrap(), Decoded::Close);
    assert_eq!(
        decode(&[0, 0, 0, 3, 200, 1, 2, 9]).unwrap(),
        Decoded::Unknown(7)
    );
}

#[test]
fn json_is_read_from_control_frames_only() {
    let frame = Frame::Control(b"[1,2]".to_vec());
    assert_eq!(frame.parse_json::<Vec<u8>>().unwrap(), [1, 2]);
    assert!(matches!(
        frame.parse_json::<String>(),
        Err(LinkError::Parse(_))
    ));
    assert!(matches!(
        examples()[2].parse_json::<String>(),
        Err(LinkError::NotControl { kind: "log" })
    ));
}

#[test]
fn i12_debug_shows_no_bytes() {
    let frame = Frame::Control(b"hunter2".to_vec());
    assert_eq!(format!("{frame:?}"), "Control(7 bytes)");
}

#[test]
fn any_bytes_give_a_frame_or_an_error() {
    let mut random = pseudo_random(1);
    let mut frames = 0_u32;
    for _ in 0..200_000 {
        let length = usize::try_from(random() % 40).unwrap();
        let mut bytes: Vec<u8> = (0..length).map(|_| random().to_le_bytes()[3]).collect();
        if !random().is_multiple_of(4) && length > 4 {
            // Mostly plausible lengths and kinds, else the length check hides all the rest.
            let stated = u32::try_from(random() % 40).unwrap();
            bytes[..4].copy_from_slice(&stated.to_be_bytes());
            bytes[4] %= 7;
        }
        match decode(&bytes) {
            Ok(Decoded::Frame(frame, used)) => {
                frames += 1;
                assert!(used <= bytes.len());
                let again = encoded(&frame);
                assert_eq!(again.len(), used);
                assert_eq!(decode(&again).unwrap(), Decoded::Frame(frame, used));
            }
            Ok(Decoded::Unknown(used)) => assert!(used <= bytes.len()),
            Ok(Decoded::Incomplete | Decoded::Close) | Err(_) => {}
        }
    }
    assert!(frames > 1000, "only {frames} frames were decoded");
}
