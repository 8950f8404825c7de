//! NVIDIA's management library, asked which GPUs there are. It is the driver's, of any age and state,
//! and may crash or never answer; so a process of its own loads it ([`list`]), whose lines another
//! reads within a bound ([`ask`]). Nothing is linked: without the library there is no answer.

#![expect(
    unsafe_code,
    reason = "a library that is loaded at run time has no safe form; each block says why it is sound"
)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

/// How long the library may take; it loads the driver where nothing has used it.
const BOUND: Duration = Duration::from_secs(5);
/// When the process that loads the library ends by itself: after [`BOUND`].
const ALARM_SECONDS: u32 = 10;
/// Most that is read of an answer.
const ANSWER_MAX: u64 = 64 * 1024;
/// Most devices that are believed.
const DEVICES_MAX: c_uint = 1024;
/// `NVML_DEVICE_UUID_V2_BUFFER_SIZE` of `nvml.h`.
const UUID_BYTES: usize = 96;
const LIBRARY: &CStr = c"libnvidia-ml.so.1";

/// An `nvmlDevice_t`.
type Device = *mut c_void;

/// Has another process load the library, `program ARGUMENT`, which is to call [`list`]; the UUIDs of
/// the GPUs, none where the library does not answer.
pub fn ask(program: &Path, argument: &str) -> Vec<String> {
    let child = Command::new(program)
        .arg(argument)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        return Vec::new();
    };
    let deadline = Instant::now() + BOUND;
    let mut answer = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        while (answer.len() as u64) < ANSWER_MAX {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(0),
                tv_nsec: left.subsec_nanos().into(),
            };
            let mut fds = [PollFd::new(&stdout, PollFlags::IN)];
            match rustix::event::poll(&mut fds, Some(&timeout)) {
                Err(rustix::io::Errno::INTR) => continue,
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            let mut part = [0; 4096];
            match stdout.read(&mut part) {
                Ok(0) | Err(_) => break,
                Ok(length) => answer.extend(part.iter().take(length)),
            }
        }
    }
    // It has ended, or is late: in both cases nothing more is wanted of it.
    drop(child.kill());
    let complete = child.wait().is_ok_and(|status| status.success());
    let text = String::from_utf8_lossy(&answer);
    if complete && text.ends_with('\n') {
        text.lines()
            .filter(|line| is_uuid(line))
            .map(str::to_owned)
            .collect()
    } else {
        Vec::new()
    }
}

/// Loads the library into this process, which should do nothing else, and returns the UUIDs of the
/// GPUs in the library's order; empty where it is missing or refuses.
pub fn list() -> Vec<String> {
    // Whoever asks ends this process when it is late; nobody else would, were the asker killed.
    nix::unistd::alarm::set(ALARM_SECONDS);
    Library::load()
        .and_then(|library| library.uuids())
        .unwrap_or_default()
}

/// `GPU-` or `MIG-` and what the library writes of a UUID: nothing that a list of devices would not
/// bear.
fn is_uuid(text: &str) -> bool {
    let prefixed = text.starts_with("GPU-") || text.starts_with("MIG-");
    prefixed
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-/".contains(&byte))
}

/// The functions that are needed of it.
struct Library {
    init: unsafe extern "C" fn() -> c_int,
    count: unsafe extern "C" fn(*mut c_uint) -> c_int,
    handle: unsafe extern "C" fn(c_uint, *mut Device) -> c_int,
    uuid: unsafe extern "C" fn(Device, *mut c_char, c_uint) -> c_int,
    shutdown: unsafe extern "C" fn() -> c_int,
}

impl Library {
    /// Loads it; it stays loaded.
    fn load() -> Option<Self> {
        // SAFETY: the name is a valid string. What the library does while it is loaded is its own;
        // this process does nothing else.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return None;
        }
        let symbol = |name: &CStr| {
            // SAFETY: the handle is valid and stays so, the name is a valid string.
            let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!symbol.is_null()).then_some(symbol)
        };
        let init = symbol(c"nvmlInit_v2")?;
        let count = symbol(c"nvmlDeviceGetCount_v2")?;
        let handle = symbol(c"nvmlDeviceGetHandleByIndex_v2")?;
        let uuid = symbol(c"nvmlDeviceGetUUID")?;
        let shutdown = symbol(c"nvmlShutdown")?;
        Some(Self {
            // SAFETY: `nvml.h` declares the function so, and has kept it since version 5.
            init: unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(init)
            },
            // SAFETY: as above.
            count: unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_uint) -> c_int>(
                    count,
                )
            },
            // SAFETY: as above.
            handle: unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_uint, *mut Device) -> c_int>(
                    handle,
                )
            },
            // SAFETY: as above.
            uuid: unsafe {
                std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(Device, *mut c_char, c_uint) -> c_int,
                >(uuid)
            },
            // SAFETY: as above.
            shutdown: unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(shutdown)
            },
        })
    }

    fn uuids(&self) -> Option<Vec<String>> {
        // SAFETY: it takes nothing.
        let begun = unsafe { (self.init)() };
        if begun != 0 {
            return None;
        }
        let mut count = 0;
        // SAFETY: the place is valid for the call.
        let counted = unsafe { (self.count)(&raw mut count) };
        let found = (counted == 0 && count <= DEVICES_MAX)
            .then(|| (0..count).filter_map(|index| self.uuid(index)).collect());
        // SAFETY: it takes nothing, and no handle is used after it.
        let _ended = unsafe { (self.shutdown)() };
        found
    }

    /// None for a device that has fallen off the bus, or that this user may not use.
    fn uuid(&self, index: c_uint) -> Option<String> {
        let mut device: Device = std::ptr::null_mut();
        // SAFETY: the place is valid for the call.
        if unsafe { (self.handle)(index, &raw mut device) } != 0 {
            return None;
        }
        let mut text = [0; UUID_BYTES];
        let length = c_uint::try_from(UUID_BYTES).ok()?;
        // SAFETY: the library has made the handle, and writes at most so many bytes.
        if unsafe { (self.uuid)(device, text.as_mut_ptr().cast(), length) } != 0 {
            return None;
        }
        let text = CStr::from_bytes_until_nul(&text).ok()?.to_str().ok()?;
        is_uuid(text).then(|| text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_nothing_else() {
        assert!(is_uuid("GPU-8f0c1c1a-0b3c-11ee-be56-0242ac120002"));
        assert!(is_uuid("MIG-8f0c1c1a-0b3c-11ee-be56-0242ac120002/1/0"));
        for text in ["", "0", "GPU-a,b", "GPU-a b", "GPU-\u{e9}"] {
            assert!(!is_uuid(text), "{text}");
        }
    }
}
