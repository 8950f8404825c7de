#![no_main]

#[path = "../link_bodies.rs"]
mod link_bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| link_bodies::link_frames(data));
