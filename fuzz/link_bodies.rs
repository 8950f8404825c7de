//! What the target `link_frames` claims of any input. Shared by the fuzzer and by a test of
//! `herd-link`.

use herd_link::Frame;
use herd_link::message::{FromCoordinator, ToCoordinator};

/// Plaintext of a link gives frames or an error; a frame is written as it was read; a message in it
/// that is understood can be written and read again.
pub(crate) fn link_frames(data: &[u8]) {
    let Ok((frames, rest)) = Frame::read_all(data) else {
        return;
    };
    assert!(rest.len() <= data.len());
    for frame in frames {
        let bytes = frame.to_bytes().expect("what was read can be written");
        let (again, rest) = Frame::read_all(&bytes).expect("what was written can be read");
        assert_eq!(
            (again.as_slice(), rest.len()),
            (std::slice::from_ref(&frame), 0)
        );
        if let Frame::Control(json) = &frame {
            if let Ok(message) = serde_json::from_slice::<ToCoordinator>(json) {
                let text = serde_json::to_vec(&message).expect("a message can be written");
                if message != ToCoordinator::Unknown {
                    let again: ToCoordinator = serde_json::from_slice(&text).expect("and read");
                    assert_eq!(again, message);
                }
            }
            if let Ok(message) = serde_json::from_slice::<FromCoordinator>(json) {
                let text = serde_json::to_vec(&message).expect("a message can be written");
                if message != FromCoordinator::Unknown {
                    let again: FromCoordinator = serde_json::from_slice(&text).expect("and read");
                    assert_eq!(again, message);
                }
            }
        }
    }
}
