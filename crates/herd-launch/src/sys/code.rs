//! Giving back the pages of code that only the start has used.

use std::io;
use std::ptr::with_exposed_provenance_mut;

use rustix::mm::{Advice, madvise};

/// Takes the code of the program and of its libraries out of this process's resident memory: the kernel
/// maps what is used again, from the page cache, when it is used again. For processes that wait most of
/// the time after a start that took much of the program.
///
/// Source: madvise(2), `MADV_DONTNEED` on a mapping of a file. Nothing is lost, since no mapping is both
/// written and executed; what a debugger has written into code is.
pub fn give_back_code() -> io::Result<()> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    for (start, end) in code(&maps) {
        // SAFETY: a whole mapping of a file that this process never writes: its bytes are the same afterwards.
        unsafe {
            madvise(
                with_exposed_provenance_mut(start),
                end - start,
                Advice::LinuxDontNeed,
            )
        }?;
    }
    Ok(())
}

/// Addresses of the mappings in `/proc/PID/maps` that are code of a file.
fn code(maps: &str) -> impl Iterator<Item = (usize, usize)> {
    maps.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let permissions = words.next()?;
        // Offset, device and inode come before the path.
        let path = words.nth(3)?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        let (start, end) = (address(start)?, address(end)?);
        (permissions == "r-xp" && path.starts_with('/') && start < end).then_some((start, end))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_files_is_given_back() {
        let maps = "\
5500-5600 r--p 00000000 fe:00 77     /usr/bin/herd
5600-5a00 r-xp 00001000 fe:00 77     /usr/bin/herd
5a00-5b00 rw-p 00005000 fe:00 77     /usr/bin/herd
6000-6100 rwxp 00000000 fe:00 78     /usr/lib/jit.so
7000-7100 r-xp 00000000 00:00 0      [vdso]
7200-7300 r-xp 00000000 00:00 0 
half a line";
        assert_eq!(code(maps).collect::<Vec<_>>(), [(0x5600, 0x5a00)]);
    }

    #[test]
    fn code_that_was_given_back_still_runs() {
        let before = "a thread of this test".to_owned();
        give_back_code().unwrap();
        assert_eq!(before.to_uppercase(), "A THREAD OF THIS TEST");
    }
}
