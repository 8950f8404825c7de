"""What may go wrong around functions as jobs, and must come back as an error: odd exceptions and values, forks, other
versions of Python, nesting, the end of the caller."""

import concurrent.futures
import os
import subprocess
import sys
import time

import pytest
import worker_functions
from conftest import DEADLINE, until

import herdsman
import herdsman._binaries
from herdsman import _calls


def cause_of(future):
    return str(future.exception(DEADLINE).__cause__)


def test_exceptions_that_cannot_travel_come_as_texts(executor):
    def needs_two():
        class Two(Exception):
            def __init__(self, a, b):
                super().__init__("a text")

        raise Two(1, 2)

    def holds_a_lock():
        import threading

        raise ValueError("words", threading.Lock())

    futures = [executor.submit(function) for function in (needs_two, holds_a_lock)]
    for future, name in zip(futures, ("Two: a text", "ValueError: ('words'")):
        error = future.exception(DEADLINE)
        assert type(error) is RuntimeError and str(error).startswith(name), error
        assert "cannot be pickled" in str(error)
    assert "in needs_two" in cause_of(futures[0]) and "in holds_a_lock" in cause_of(futures[1])


def test_a_value_that_cannot_be_unpickled_here_is_an_error(executor):
    def trap():
        class Trap:
            def __reduce__(self):
                return (int, ("no number",))

        return Trap()

    error = executor.submit(trap).exception(DEADLINE)
    assert isinstance(error, ValueError) and "cannot be unpickled here" in str(error.__cause__)


def test_a_recursion_without_end_is_an_error(executor):
    def fall():
        return fall()

    nested = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises((RecursionError, Exception)):
        executor.submit(len, nested)
    assert isinstance(executor.submit(fall).exception(DEADLINE), RecursionError)
    deep = executor.submit(lambda: __import__("functools").reduce(lambda inner, _: [inner], range(100_000), []))
    assert isinstance(deep.exception(DEADLINE), TypeError)
    del nested


@pytest.mark.slow
def test_a_hundred_megabytes_travel_both_ways(executor):
    data = os.urandom(1 << 20) * 100
    assert executor.submit(lambda data: data[::-1], data).result(DEADLINE) == data[::-1]


def test_a_call_from_another_version_is_refused(tmp_path, monkeypatch):
    """As it would be in a job whose Python is another one."""
    _calls.write_calls(str(tmp_path), [(len, ((),), {})])
    monkeypatch.setattr(sys, "version_info", (3, 99, 0))
    with pytest.raises(RuntimeError, match=r"the call is from Python 3\.\d+, and the job has Python 3\.99 .*\n.*hint: name"):
        _calls.read_call(str(tmp_path), 0)


def test_a_call_may_use_an_executor(executor, home):
    def outer(home):
        import herdsman

        with herdsman.Executor(backend="local", home=home) as inner:
            return inner.submit(pow, 2, 3).result(60), list(inner.map(abs, [-1, -2]))

    assert executor.submit(outer, home).result(DEADLINE) == (8, [1, 2])
    assert list(executor.map(outer, [home] * 2)) == [(8, [1, 2])] * 2


def test_an_executor_is_of_the_process_that_made_it(executor):
    pid = os.fork()
    if pid == 0:
        try:
            executor.submit(len, ())
        except RuntimeError as error:
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert executor.submit(len, ()).result(DEADLINE) == 0


def test_max_workers_bounds_a_map(home, tmp_path):
    def overlap(directory, index):
        import os
        import time

        path = os.path.join(directory, str(index))
        open(path, "w").close()
        time.sleep(0.2)
        seen = len([name for name in os.listdir(directory) if not name.endswith(".done")])
        os.rename(path, path + ".done")
        return seen

    directory = tmp_path / "marks"
    directory.mkdir()
    with herdsman.Executor(backend="local", home=home, max_workers=1) as executor:
        assert list(executor.map(overlap, [str(directory)] * 3, range(3))) == [1, 1, 1]
    with pytest.raises(TypeError, match="hint: max_workers=4"):
        herdsman.Executor(4)
    with pytest.raises(ValueError):
        herdsman.Executor(max_workers=0)


def test_max_workers_bounds_calls_of_submit(home, tmp_path):
    def overlap(directory):
        import os

        from worker_functions import hold

        path = os.path.join(directory, str(os.getpid()))
        open(path, "w").close()
        hold(directory + ".go")
        seen = len(os.listdir(directory))
        os.remove(path)
        return seen

    directory = tmp_path / "marks"
    directory.mkdir()
    # cpus=None: nothing else holds them back.
    with herdsman.Executor(backend="local", home=home, max_workers=2, cpus=None) as executor:
        futures = [executor.submit(overlap, str(directory)) for _ in range(5)]
        last = futures[-1]
        assert last.job is None and not last.running()
        assert futures[-2].cancel()
        until(lambda: len(os.listdir(directory)) == 2)
        (tmp_path / "marks.go").touch()
        assert max(future.result(DEADLINE) for future in futures if not future.cancelled()) <= 2
        assert last.job.state


def test_a_fault_of_a_call_that_waited_is_in_its_future(home, monkeypatch, tmp_path):
    with herdsman.Executor(backend="local", home=home, max_workers=1) as executor:
        first, second = executor.submit(worker_functions.hold, str(tmp_path / "go")), executor.submit(len, ())
        until(first.running)
        monkeypatch.setenv("HERDSMAN_HERD", "/nonexistent")
        (tmp_path / "go").touch()
        error = second.exception(DEADLINE)
        monkeypatch.undo()
        assert isinstance(error, FileNotFoundError) and first.result(DEADLINE) is None


def test_calls_wait_for_processors(home):
    with herdsman.Executor(backend="local", home=home) as executor:
        futures = [executor.submit(time.sleep, 600) for _ in range(len(os.sched_getaffinity(0)) + 1)]
        until(lambda: all(future.running() for future in futures[:-1]))
        until(lambda: futures[-1].job.state == "QUEUED" and "CPU" in futures[-1].job.why())
        for future in futures:
            assert future.cancel()
    assert all(future.cancelled() and future.job.state == "CANCELLED" for future in futures)


def test_a_job_that_is_cancelled_is_a_cancelled_future(executor):
    future = executor.submit(time.sleep, 600)
    until(future.running)
    future.job.cancel(grace=1)
    until(future.done)
    assert future.cancelled() and not concurrent.futures.wait([future], timeout=DEADLINE).not_done


@pytest.mark.parametrize(
    "options, what",
    [({"nodes": 2}, "nodes"), ({"array": "0-3"}, "array"), ({"run": "x"}, "run"), ({"procs_per_node": 2}, "procs_per_node")]
    + [({"type": "mpi"}, "type"), ({"foo": 1}, "foo"), ({"workdir": object()}, "workdir")],
)
def test_options_that_do_not_fit_a_call_are_refused_and_leave_nothing(home, options, what):
    with pytest.raises(herdsman.InvalidJobError, match=f"{what}: .*"):
        herdsman.Executor(backend="local", home=home, **options).submit(len, [1])
    folder = os.path.join(home, "python")
    until(lambda: not os.path.exists(folder) or os.listdir(folder) == [])


def test_ctrl_c_in_the_block_ends_what_runs(home):
    with pytest.raises(KeyboardInterrupt):
        with herdsman.Executor(backend="local", home=home) as executor:
            future, results = executor.submit(time.sleep, 600), executor.map(time.sleep, [600] * 3)
            until(future.running)
            raise KeyboardInterrupt
    assert future.cancelled() and future.job.state == "CANCELLED"
    with pytest.raises(concurrent.futures.CancelledError):
        next(results)


def test_an_initializer_runs_before_each_call(home):
    def prepare(name):
        import os

        os.environ[name] = "ready"

    with herdsman.Executor(backend="local", home=home, initializer=prepare, initargs=("OF_TEST",)) as executor:
        assert executor.submit(os.getenv, "OF_TEST").result(DEADLINE) == "ready"
        assert list(executor.map(os.getenv, ["OF_TEST"] * 2)) == ["ready"] * 2


def test_the_tools_of_concurrent_futures_work(executor):
    futures = [executor.submit(pow, 2, n) for n in range(3)]
    done = {future.result() for future in concurrent.futures.as_completed(futures, timeout=DEADLINE)}
    assert done == {1, 2, 4}
    assert not concurrent.futures.wait(futures, timeout=DEADLINE).not_done


def test_a_retry_may_mend_an_error(home, tmp_path):
    def second_time(path):
        import os

        if not os.path.exists(path):
            open(path, "w").close()
            raise ValueError("the first time")
        return "mended"

    retry = {"max": 1, "on": ["rank-failed"]}
    with herdsman.Executor(backend="local", home=home, retry=retry) as executor:
        assert executor.submit(second_time, str(tmp_path / "mark")).result(DEADLINE) == "mended"
        error = executor.submit(lambda: [].pop()).exception(DEADLINE)
        assert isinstance(error, IndexError)


LEFT = """
import os, sys, time, herdsman
executor = herdsman.Executor(backend="local", home=sys.argv[1])
assert executor.submit(pow, 2, 3).result(60) == 8
if sys.argv[2] != "nothing":
    futures = [executor.submit(time.sleep, 600) for _ in range(3)]
    futures.append(executor.map(time.sleep, [600] * 3))
    while not futures[0].running():
        time.sleep(0.01)
    print(*(future.job.id for future in futures[:3]), flush=True)
if sys.argv[2].isdigit():
    os.kill(os.getpid(), int(sys.argv[2]))
"""


@pytest.mark.parametrize("what", ["nothing", "running", "15", "9"])
def test_calls_end_with_the_process_that_owns_them(host, home, what):
    """Whether they run or wait, and whatever ends it; nothing is left, at the latest when the next executor looks."""
    code, out, err = host(LEFT, home, what).end()
    assert code == (-int(what) if what.isdigit() else 0) and not err, err
    for id in out.split():
        assert herdsman.Job.from_id(id, home=home).wait(DEADLINE) == "CANCELLED"
    active = [herdsman._binaries.herd(), "--home", home, "ls", "--state", "active", "-o", "id"]
    until(lambda: not subprocess.run(active, capture_output=True, check=True).stdout)
    if what.isdigit():
        with herdsman.Executor(backend="local", home=home) as executor:
            executor.submit(len, ()).result(DEADLINE)
    assert os.listdir(os.path.join(home, "python")) == []


def test_without_descriptors_a_result_comes_later(executor, tmp_path):
    import resource

    future = executor.submit(worker_functions.hold, str(tmp_path / "go"))
    until(future.running)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        # To make a directory takes no descriptor.
        os.mkdir(tmp_path / "go")
        time.sleep(1)
        with pytest.raises(OSError):
            executor.submit(len, ())
        assert not future.done()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert future.result(DEADLINE) is None


def test_a_full_disk_is_an_error_of_the_call(executor, tmp_path, monkeypatch):
    def fill(directory):
        import herdsman._calls as calls

        def full(path, data):
            import errno

            if len(data) > 100_000:
                raise OSError(errno.ENOSPC, "No space left on device", path)
            return whole(path, data)

        whole, calls._write = calls._write, full
        return bytes(1_000_000)

    error = executor.submit(fill, str(tmp_path)).exception(DEADLINE)
    assert isinstance(error, OSError) and error.errno == 28
