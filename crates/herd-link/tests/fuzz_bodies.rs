//! The claims of the fuzz target `link_frames`, on mutations of its seeds and on arbitrary bytes.

#[path = "../../../fuzz/link_bodies.rs"]
mod link_bodies;
#[path = "../../../fuzz/mutations.rs"]
#[allow(
    dead_code,
    clippy::allow_attributes,
    reason = "other tests use more of it"
)]
mod mutations;

use link_bodies::link_frames;

#[test]
fn link_frames_are_read_or_refused() {
    mutations::mutate("link_frames", link_frames);
}

#[test]
fn every_length_and_kind_at_the_beginning() {
    for length in [0u32, 1, 2, 8, 9, 18, 25, 26, 8_388_608, 8_388_609, u32::MAX] {
        for kind in 0..=255 {
            let mut bytes = length.to_be_bytes().to_vec();
            bytes.push(kind);
            bytes.extend([0x01; 40]);
            link_frames(&bytes);
        }
    }
}
