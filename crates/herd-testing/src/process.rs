//! Processes as `/proc` shows them, by their ids.

use std::fs;
use std::path::Path;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// Process ids that were written to a file, one a line; a line that is still being written is not
/// counted.
pub fn pids(path: &Path) -> Vec<i32> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let Some((whole, _)) = text.rsplit_once('\n') else {
        return Vec::new();
    };
    whole
        .lines()
        .filter_map(|line| line.trim().parse().ok())
        .collect()
}

/// State letter and parent of a process.
fn stat(pid: i32) -> Option<(char, i32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything: fields count from the last one.
    let mut fields = text.rsplit(')').next()?.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// The kernel's letter for what a process does (`T`: stopped); `None` for one that is gone.
pub fn state(pid: i32) -> Option<char> {
    stat(pid).map(|(state, _)| state)
}

/// Whether a process lives: zombies do not count.
pub fn alive(pid: i32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Process ids of the living children of `parent`.
pub fn children(parent: i32) -> Vec<i32> {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|&pid| stat(pid).is_some_and(|(state, of)| of == parent && state != 'Z'))
        .collect()
}

/// Sends a signal, named as `kill` names it: `-TERM`.
pub fn signal(pid: i32, name: &str) {
    let name = format!("SIG{}", name.trim_start_matches('-'));
    let signal: Signal = name.parse().unwrap();
    nix::sys::signal::kill(Pid::from_raw(pid), signal).unwrap();
}

/// Lets this process have so many files open at once: most shells let it have 1024 unless it asks for more.
pub fn allow_open_files(count: u64) {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    assert!(
        hard >= count,
        "this test opens {count} files, and `ulimit -Hn` is {hard}"
    );
    // Tests beside this one may ask for less.
    if soft < count {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    }
}

/// The most memory that a process has ever held, KiB.
pub fn peak_memory_kib(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.unwrap().split_whitespace().next().unwrap();
    number.parse().unwrap()
}

/// What a process was started with that others may be able to read: its arguments and its
/// environment. Empty for one that is gone.
pub fn arguments_and_environment(pid: i32) -> (Vec<u8>, Vec<u8>) {
    let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    (read("cmdline"), read("environ"))
}

/// Living processes of this machine, others' containers included, with a text in their arguments or their
/// environment; not the calling one.
pub fn with_text(text: &str) -> Vec<i32> {
    let text = text.as_bytes();
    let holds = |bytes: &[u8]| bytes.windows(text.len()).any(|window| window == text);
    let own = std::process::id();
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| u32::try_from(*pid) != Ok(own) && alive(*pid))
        .filter(|pid| {
            let (argv, env) = arguments_and_environment(*pid);
            holds(&argv) || holds(&env)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::eventually;

    #[test]
    fn a_process_is_seen_to_live_to_stop_and_to_end() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(alive(pid) && children(own).contains(&pid));
        signal(pid, "-STOP");
        eventually("the stop", || state(pid) == Some('T'));
        signal(pid, "-KILL");
        eventually("the end", || !alive(pid));
        child.wait().unwrap();
        assert_eq!(state(pid), None);
    }

    #[test]
    fn a_line_that_is_not_whole_is_no_process() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "12\n34\n5").unwrap();
        assert_eq!(pids(file.path()), [12, 34]);
    }
}
