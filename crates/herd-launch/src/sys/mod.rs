//! The system calls that have no safe wrapper elsewhere, and the process-wide settings that only a
//! program (never a library) may make. It starts no thread, keeps no state and decides nothing.

#![expect(
    unsafe_code,
    reason = "clone, exec, fork, wait4 and madvise have no safe form; each block says why it is sound"
)]

mod code;
mod environment;
mod exec;
mod process;

pub use code::give_back_code;
pub use environment::forget_variable;
pub(crate) use exec::{Exec, ExecFailure, Step};
pub use process::{
    Fork, block_signals, fork, hear_of_children, ignore_terminal_stops, is_ignored, local_time,
    raise_nofile, set_pdeathsig_checked, set_subreaper, survive_file_size_limit, take_inherited,
    unblock_signals, wait_for_signal, watch_readable, watch_stream,
};
pub(crate) use process::{nofile_before, peek_exited, reap};
