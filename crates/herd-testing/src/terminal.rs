//! A terminal with a program of its own in it, as a person has one: a session, a foreground
//! process group, and keys that the kernel turns into signals.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use nix::pty::{Winsize, openpty};

use crate::eventually;

/// Ctrl-C.
pub const CTRL_C: &str = "\u{3}";
/// Ctrl-Z.
pub const CTRL_Z: &str = "\u{1a}";

/// A terminal and the program that leads its session. Dropped, it hangs up and kills that program.
#[derive(Debug)]
pub struct Terminal {
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
    child: Child,
}

impl Terminal {
    /// Starts `command` as the leader of a new session with a new terminal of 200 columns.
    pub fn start(command: &Command) -> Self {
        let size = Winsize {
            ws_row: 50,
            ws_col: 200,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pair = openpty(Some(&size), None).unwrap();
        let inside = |fd: &OwnedFd| File::from(fd.try_clone().unwrap());
        // `setsid` makes the terminal the controlling one, for which the library has no safe call.
        let mut leader = Command::new("setsid");
        leader
            .arg("--ctty")
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(inside(&pair.slave))
            .stdout(inside(&pair.slave))
            .stderr(inside(&pair.slave));
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => leader.env(name, value),
                None => leader.env_remove(name),
            };
        }
        if let Some(directory) = command.get_current_dir() {
            leader.current_dir(directory);
        }
        let child = leader.spawn().unwrap();
        drop(pair.slave);
        // `leader` holds the inner side too: it must not keep the terminal open after the end.
        drop(leader);
        let keyboard = File::from(pair.master);
        let mut output = keyboard.try_clone().unwrap();
        let screen = Arc::new(Mutex::new(Vec::new()));
        let shown = Arc::clone(&screen);
        // Ends when nobody has the inner side open any more.
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
                shown.extend_from_slice(&buffer[..count]);
            }
        });
        Self {
            keyboard,
            screen,
            reader: Some(reader),
            child,
        }
    }

    /// Types; [`CTRL_Z`] and the like included.
    pub fn write(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Everything that was shown so far, what was typed included where it is echoed.
    pub fn screen(&self) -> String {
        let shown = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&shown).into_owned()
    }

    /// Waits until `text` has been shown.
    #[track_caller]
    pub fn expect(&self, text: &str) {
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually(text, || self.screen().contains(text));
        }));
        assert!(found.is_ok(), "{text:?} is not on\n{}", self.screen());
    }

    /// Process id of the leader.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Waits for the end of the leader and of all that it showed.
    pub fn wait(&mut self) -> (ExitStatus, String) {
        let mut status = None;
        eventually("the end of the terminal's program", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        if let Some(reader) = self.reader.take() {
            eventually("the end of what it shows", || reader.is_finished());
        }
        (status.unwrap(), self.screen())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_signals_to_the_program_in_the_foreground() {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "trap 'echo interrupted; exit 3' INT; echo ready; read x",
        ]);
        let mut terminal = Terminal::start(&command);
        terminal.expect("ready");
        terminal.write(CTRL_C);
        let (status, screen) = terminal.wait();
        assert_eq!(status.code(), Some(3), "{screen}");
        assert!(screen.contains("interrupted"));
    }
}
