//! The rows whose outcome hangs on time, once more while all processors are busy.

use crate::fixture::Load;
use crate::{leftovers, rows, stopped};

#[test]
fn row_13_under_load() {
    let _load = Load::start();
    rows::row_13_lines_of_busy_ranks_are_shown_whole_and_once();
}

#[test]
fn rows_14_to_16_under_load() {
    let _load = Load::start();
    rows::rows_14_to_16_lines_come_soon_partial_ones_whole_and_the_last_at_the_end();
}

#[test]
fn rows_21_and_29_under_load() {
    let _load = Load::start();
    rows::rows_21_and_29_the_shutdown_timeout_holds_after_a_failure();
    stopped::row_29_a_stopped_peer_is_ended_with_the_others();
}

#[test]
fn rows_22_and_23_under_load() {
    let _load = Load::start();
    rows::rows_22_and_23_nothing_of_a_worker_is_left_however_it_ends();
    leftovers::rows_22_and_23_shells_daemons_and_setuid_children();
}

#[test]
fn row_24_under_load() {
    let _load = Load::start();
    rows::row_24_nothing_is_left_when_the_launcher_is_killed();
    leftovers::row_24_whichever_of_the_launchers_two_processes_is_killed();
}

#[test]
fn rows_25_and_26_under_load() {
    let _load = Load::start();
    rows::row_25_a_worker_leads_its_session();
    rows::row_26_signals_reach_workers_as_themselves_and_the_status_is_1();
}

#[test]
fn row_27_under_load() {
    let _load = Load::start();
    rows::row_27_signals_that_come_again_kill_and_leave_nobody();
}
