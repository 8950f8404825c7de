"""Rows 19 to 24 and 32: waiting, and ending workers with all that is below them."""

import os
import signal
import threading
import time

import pytest
import worker_functions
from conftest import alive, number_in, until

from herdsman.multiprocessing import SignalException, Std

IGNORE = "trap '' TERM; echo $$ > \"$0\"; while :; do sleep 600; done"


def started(path):
    return until(lambda: number_in(path), f"a number in {path}")


@pytest.mark.parametrize("entrypoint, args", [("sleep", ("600",)), (worker_functions.act, (("sleep",),))])
def test_row_19_a_wait_ends_when_it_was_to(start, entrypoint, args):
    context = start(entrypoint, [args])
    began = time.monotonic()
    assert context.wait(0.3) is None
    took = time.monotonic() - began
    # 0.4 s on a machine that is idle.
    assert 0.3 <= took < 2, took
    assert context.wait(0) is None


@pytest.mark.parametrize("entrypoint, args", [("sleep", ("600",)), (worker_functions.act, (("sleep",),))])
def test_row_20_close_ends_workers_and_tailers(start, entrypoint, args):
    context = start(entrypoint, [args, args], tee=Std.ALL, duplicate_stdout_filters=["x"])
    pids = context.pids()
    context.close()
    assert not any(alive(pid) for pid in pids.values())
    assert all(tail.stopped() for tail in context._tail_logs)
    assert context.filtered_stdout.closed
    context.close()


def test_shutdown_is_close(start):
    context = start("sleep", [("600",)])
    context.shutdown(signal.SIGINT, timeout=30)
    assert context.wait(0).failures[0].exitcode == -signal.SIGINT


def test_row_21_a_program_that_ignores_the_signal_is_killed(start, tmp_path):
    context = start("sh", [("-c", IGNORE, str(tmp_path / "pid"))])
    pid = started(tmp_path / "pid")
    began = time.monotonic()
    context.close(timeout=1)
    took = time.monotonic() - began
    # Half a second about the time-out on a machine that is idle.
    assert 0.9 <= took < 5 and not alive(pid), took
    assert context.wait(0).failures[0].exitcode == -9


def test_row_21_a_function_that_ignores_the_signal_is_killed(start, tmp_path):
    context = start(worker_functions.ignore_term_and_sleep, [(str(tmp_path / "pid"),)], start_method="fork")
    pid = started(tmp_path / "pid")
    began = time.monotonic()
    context.close(timeout=1)
    assert 0.9 <= time.monotonic() - began < 10 and not alive(pid)


@pytest.mark.parametrize("kind", ["program", "function"])
def test_without_any_time_to_end_workers_are_killed_and_gone(start, tmp_path, caplog, kind):
    pid_file = str(tmp_path / "pid")
    if kind == "program":
        context = start("sh", [("-c", IGNORE, pid_file)])
    else:
        context = start(worker_functions.ignore_term_and_sleep, [(pid_file,)], start_method="fork")
    pid = started(tmp_path / "pid")
    context.close(timeout=0)
    assert not alive(pid)
    assert "cannot be killed" not in caplog.text


def test_row_22_what_a_program_started_dies_with_it(start, tmp_path):
    context = start("sh", [("-c", 'sleep 600 & echo $! > "$0"; wait', str(tmp_path / "child"))])
    child = started(tmp_path / "child")
    context.close()
    assert not alive(child)


@pytest.mark.parametrize("code", [0, 1])
def test_row_23_nothing_is_left_of_a_program_that_ended(start, tmp_path, code):
    script = f'sleep 600 & echo $! > "$0"; exit {code}'
    result = start("sh", [("-c", script, str(tmp_path / "child"))]).wait(60)
    assert result.is_failed() == bool(code)
    assert not alive(number_in(tmp_path / "child"))


ORPHANS = """
import sys, worker_functions
from herdsman.multiprocessing import DefaultLogsSpecs, start_processes
if __name__ == "__main__":
    kind, directory = sys.argv[1:]
    if kind == "program":
        script = 'sleep 600 & echo $! > child; setsid sleep 600 & echo $! > daemon; echo $$ > worker; exec sleep 600'
        entrypoint, args, method = "sh", ("-c", f"cd {directory}; {script}"), "spawn"
    else:
        entrypoint, args, method = worker_functions.with_grandchildren, (directory,), kind
    specs = DefaultLogsSpecs(log_dir=directory)
    context = start_processes("t", entrypoint, {0: args}, {0: {}}, specs, start_method=method)
    print("started", flush=True)
    context.wait()
"""


@pytest.mark.parametrize("kind", ["program", "spawn", "fork", "forkserver"])
def test_row_24_i5_nothing_is_left_when_the_host_is_killed(host, tmp_path, kind):
    running = host(ORPHANS, kind, tmp_path)
    assert running.line() == "started"
    names = ["worker", "child", "daemon"] + ([] if kind == "program" else ["orphan"])
    pids = {name: started(tmp_path / name) for name in names}
    assert all(alive(pid) for pid in pids.values())
    running.process.send_signal(signal.SIGKILL)
    running.process.wait()
    died = time.monotonic()
    until(lambda: not any(alive(pid) for pid in pids.values()), f"the end of {pids}")
    # 2 s on a machine that is idle.
    assert time.monotonic() - died < 10


def test_i5_nothing_is_left_when_the_supervisor_is_killed(start, tmp_path):
    script = 'sleep 600 & echo $! > "$0"; wait'
    context = start("sh", [("-c", script, str(tmp_path / "child"))])
    child, worker = started(tmp_path / "child"), context.pids()[0]
    # The guard, which the host has started: its child sees that and ends the workers.
    os.kill(context._supervised.pid, signal.SIGKILL)
    result = context.wait(60)
    assert result.is_failed()
    until(lambda: not alive(worker) and not alive(child))


def test_row_32_programs_that_were_ended_are_failures_too(start):
    result = start("sh", [("-c", "exec sleep 600"), ("-c", "exit 3"), ("-c", "trap 'exit 0' TERM; sleep 600 & wait")])
    result = result.wait(60)
    codes = {rank: failure.exitcode for rank, failure in result.failures.items()}
    assert codes[1] == 3 and codes[0] == -15
    assert codes.get(2) in (None, -15)  # before its trap, or after
    # D12: the one that failed by itself comes first.
    assert list(result.failures)[0] == 1
    assert result.return_values == {}


def test_row_32_of_functions_only_the_first_is_a_failure(start):
    args = [(("sleep",),), (("fail", "why"),), (("sleep",),)]
    context = start(worker_functions.act, args, start_method="fork")
    pids = context.pids()
    result = context.wait(60)
    assert list(result.failures) == [1] and result.failures[1].exitcode == 1
    assert not any(alive(pid) for pid in pids.values())


def test_a_wait_returns_as_soon_as_all_have_ended(start):
    context = start("true", [()])
    began = time.monotonic()
    assert context.wait(60, period=30) is not None
    assert time.monotonic() - began < 20


SIGNALS = """
import os, signal, sys
from herdsman.multiprocessing import DefaultLogsSpecs, SignalException, start_processes
directory = sys.argv[1]
script = 'trap "echo $1 > caught; exit 0" ' + sys.argv[2] + '; echo $$ > worker; while :; do sleep 0.05; done'
context = start_processes("t", "sh", {0: ("-c", f"cd {directory}; {script}", "x", sys.argv[2])}, {0: {}}, DefaultLogsSpecs(directory))
try:
    print("started", flush=True)
    context.wait()
except SignalException as error:
    context.close(error.sigval)
    print(error, int(error.sigval))
    sys.exit(1)
"""


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT"])
def test_a_signal_to_the_host_is_raised_and_can_be_passed_on(host, tmp_path, name):
    running = host(SIGNALS, tmp_path, name)
    assert running.line() == "started"
    started(tmp_path / "worker")
    number = getattr(signal, f"SIG{name}")
    running.process.send_signal(number)
    code, out, err = running.end()
    assert code == 1, err
    assert out, err
    assert out == f"Process {running.process.pid} got signal: {int(number)} {int(number)}\n"
    assert (tmp_path / "caught").read_text() == f"{name}\n"


def test_signals_to_handle_are_chosen_and_unknown_ones_warned_of(start, monkeypatch, caplog):
    handler = lambda number, frame: None  # noqa: E731
    signal.signal(signal.SIGTERM, handler)
    monkeypatch.setenv("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGHUP, SIGNONE")
    start("true", [()]).wait(60)
    assert signal.getsignal(signal.SIGTERM) is handler
    assert "Failed to register signal handler for  SIGNONE" in caplog.text
    with pytest.raises(SignalException) as raised:
        signal.raise_signal(signal.SIGHUP)
    assert raised.value.sigval is signal.SIGHUP


def test_d15_an_ignored_hang_up_stays_ignored(start):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    start("true", [()]).wait(60)
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_d14_closing_again_kills_at_once(start, tmp_path):
    context = start("sh", [("-c", IGNORE, str(tmp_path / "pid"))])
    pid = started(tmp_path / "pid")
    closing = threading.Thread(target=context.close, kwargs={"timeout": 600})
    closing.start()
    until(lambda: context._supervised is not None)
    context._supervised.stop(signal.SIGTERM, 600)
    context._supervised.stop(signal.SIGTERM, 600)
    closing.join(60)
    assert not closing.is_alive() and not alive(pid)
