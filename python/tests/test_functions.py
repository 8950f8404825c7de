"""Rows 30, 31 and 33 for functions: what they return, and all the ways in which they end."""

import os
import signal

import pytest
import worker_functions
from conftest import number_in

from herdsman.multiprocessing import Std

METHODS = pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])


@METHODS
def test_values_come_back_by_rank(start, method):
    context = start(worker_functions.add, [(1, 2), ("a", "b")], start_method=method)
    result = context.wait(60)
    assert not result.is_failed() and result.return_values == {0: 3, 1: "ab"}
    assert context.wait(0) is result


@METHODS
def test_row_30_values_of_any_size(start, method):
    context = start(worker_functions.large, [(50,), (50,)], start_method=method)
    values = context.wait(120).return_values
    assert [len(values[rank]) for rank in range(2)] == [50 << 20] * 2


FATES = {
    "exception": (worker_functions.fail, ("why",), 1),
    "sys.exit(3)": (worker_functions.exit_with, (3,), 3),
    "sys.exit(text)": (worker_functions.exit_with, ("words",), 1),
    "KeyboardInterrupt": (worker_functions.interrupt, (), 130),
    "os._exit(0)": (worker_functions.vanish, (0,), 0),
    "os._exit(7)": (worker_functions.vanish, (7,), 7),
    "SIGSEGV": (worker_functions.die_of, (11,), -11),
    "SIGKILL": (worker_functions.die_of, (9,), -9),
    "unpicklable": (worker_functions.unpicklable, (), 1),
}


@METHODS
@pytest.mark.parametrize("fate", FATES)
def test_row_31_every_way_to_fail_ends(start, fate, method):
    if method == "spawn" and fate not in ("exception", "os._exit(0)", "SIGSEGV"):
        method = "forkserver"  # quicker, and the same for the rest
    function, args, code = FATES[fate]
    context = start(function, [args], start_method=method)
    result = context.wait(60)
    failure = result.failures[0]
    assert failure.exitcode == code and failure.pid == context.pids()[0]
    if fate == "exception":
        assert failure.message["message"] == "ValueError: why"
        assert "worker_functions.py" in failure.message["extraInfo"]["py_callstack"]
    else:
        assert failure.error_file == "<N/A>"
    if fate == "os._exit(0)":
        assert "delivered no result" in failure.message
    if code < 0:
        assert failure.message == f"Signal {-code} ({signal.Signals(-code).name}) received by PID {failure.pid}"


@pytest.mark.parametrize("function, args", [(worker_functions.bare_exit, ()), (worker_functions.exit_with, (0,))])
def test_row_31_a_good_exit_is_a_value(start, function, args):
    assert start(function, [args], start_method="fork").wait(60).return_values == {0: None}


def test_a_descendant_that_holds_all_descriptors_keeps_nobody(start, tmp_path):
    context = start(worker_functions.fork_holding_everything, [(str(tmp_path / "pid"),)], start_method="fork")
    assert context.wait(60).return_values == {0: "left"}
    # As the original has it, what a function has started is its own business.
    os.kill(number_in(tmp_path / "pid"), signal.SIGKILL)


def test_row_18_a_function_writes_into_its_files(start):
    context = start(worker_functions.print_everywhere, [()], redirects=Std.ALL)
    result = context.wait(60)
    assert sorted(open(result.stdouts[0]).read().splitlines()) == ["of a child", "of c", "of python"]
    assert open(result.stderrs[0]).read() == "to stderr\n"


def test_a_function_may_replace_its_stdout(start):
    result = start(worker_functions.replace_stdout, [()], redirects=Std.OUT).wait(60)
    assert result.return_values == {0: "done"}
    assert open(result.stdouts[0]).read() == "before\n"


def test_many_functions(start):
    context = start(worker_functions.add, {rank: (rank, 1) for rank in range(16)}, start_method="fork")
    assert context.wait(120).return_values == {rank: rank + 1 for rank in range(16)}
