//! Taking a secret out of this process's own environment.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use super::process::require_one_thread;

/// Removes a variable and overwrites its value, which `/proc/PID/environ` would show as long as the
/// process lives, to whoever may look. Refused while there is more than one thread, since another
/// one might be reading. Process-wide: for programs.
pub fn forget_variable(name: &OsStr) -> io::Result<()> {
    let c_name = std::ffi::CString::new(name.as_bytes())?;
    require_one_thread()?;
    // SAFETY: the name is NUL-terminated, and no other thread changes the environment meanwhile.
    let value = unsafe { libc::getenv(c_name.as_ptr()) };
    if value.is_null() {
        return Ok(());
    }
    // SAFETY: what `getenv` returns is NUL-terminated.
    let length = unsafe { libc::strlen(value) };
    for index in 0..length {
        // SAFETY: below the length, so within the string.
        let byte = unsafe { value.add(index) };
        // SAFETY: the environment is writable memory of this process, and nobody else reads it now.
        unsafe { ptr::write_volatile(byte, 0) };
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "there is no other thread that could read the environment"
    )]
    // SAFETY: this is the only thread.
    unsafe {
        std::env::remove_var(name);
    }
    Ok(())
}
