//! Facts of this machine that both `doctor` and the plan of a local job look at.

use std::fs::{self, File};

/// GPU device files of this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Devices {
    /// All that there are.
    pub(crate) all: u32,
    /// Those that can be opened.
    pub(crate) usable: u32,
}

/// Counts `/dev/nvidia0`, `/dev/nvidia1` and so on.
pub(crate) fn gpu_devices() -> Devices {
    let mut devices = Devices::default();
    for entry in fs::read_dir("/dev").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix("nvidia"));
        if digits.is_some_and(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit())) {
            devices.all += 1;
            let opened = File::options().read(true).write(true).open(entry.path());
            devices.usable += u32::from(opened.is_ok());
        }
    }
    devices
}
