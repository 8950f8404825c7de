//! `herd executor` with SkyPilot's flags: takes the place of the Python module that SkyPilot's generated
//! driver starts by `srun`, one process per node.
//!
//! It has no coordinator and no link. Nodes meet by files in a shared home (`signal_files`, `barrier`,
//! `script_share`), as that driver expects; a script is run by an interactive shell (`script`), its output
//! goes to a log and, with a prefix, to `srun` (`output`). `arguments`, `place`, `scrub` are pure. Numbers
//! of sections and rows are those of the task executor's specification.

mod arguments;
mod barrier;
mod output;
mod place;
mod run;
mod script;
mod script_share;
mod scrub;
mod signal_files;
mod surroundings;

use std::ffi::OsString;
use std::io::Write as _;

use herd_core::exit;
use herd_core::text::error_report;

pub use arguments::is_asked;

/// Runs `herd executor` with SkyPilot's flags and returns the exit code. The process must have no other
/// thread yet.
pub fn run(args: &[OsString]) -> u8 {
    let arguments = match arguments::parse(args) {
        Ok(arguments) => arguments,
        Err(error) => {
            say(&error_report(&error));
            return exit::USAGE;
        }
    };
    match run::run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            say(&error_report(&error));
            exit::HERD_FAILED
        }
    }
}

/// Tells of something that does not end the job.
fn warn(text: &str) {
    say(&format!("herd: warning: {text}\n"));
}

/// Nobody is left to tell when stderr is closed.
fn say(text: &str) {
    drop(std::io::stderr().write_all(text.as_bytes()));
}
