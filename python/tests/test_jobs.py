"""Jobs from Python on this machine, and functions as jobs."""

import asyncio
import concurrent.futures
import datetime
import os
import subprocess
import sys
import time

import pytest
import worker_functions

import herdsman
import herdsman._binaries
from conftest import DEADLINE, until
from herdsman import aio


def test_a_command_runs_and_tells(home):
    job = herdsman.submit(["sh", "-c", "echo out; echo err >&2"], backend="local", home=home, name="two")
    assert job.wait(DEADLINE) == "SUCCEEDED" == job.state
    result = job.result()
    assert result["name"] == "two" and result["exit_code"] == 0
    assert sorted(job.logs().split()) == ["err", "out"]
    assert job.logs(stream="stdout") == "out\n"
    assert "SUCCEEDED" in [event.get("state") for event in job.events()]
    assert job.why()
    assert herdsman.Job.from_id(result["short"], home=home) == job


def test_a_text_is_for_a_shell_and_a_file_says_all(home, tmp_path):
    job = herdsman.submit("echo $A | tr a-z A-Z", env={"A": "words"}, backend="local", home=home)
    job.result(DEADLINE)
    assert job.logs() == "WORDS\n"
    path = tmp_path / "job.yaml"
    path.write_text("name: of-a-file\nrun: echo file\n")
    job = herdsman.submit(path, backend="local", home=home)
    assert job.result(DEADLINE)["name"] == "of-a-file"
    with pytest.raises(TypeError, match="job file says all"):
        herdsman.submit(path, name="x", home=home)


def test_values_of_python_are_taken(home, tmp_path):
    first = herdsman.submit("true", backend="local", home=home)
    path = tmp_path / "a path"
    path.mkdir()
    options = {"workdir": path, "after": [first], "walltime": datetime.timedelta(minutes=5), "env": None, "memory": None}
    job = herdsman.submit(("echo", path, 3), backend="local", home=home, name="odd", **options)
    job.result(DEADLINE)
    assert job.logs() == f"{path} 3\n"
    job = herdsman.submit({"run": "pwd", "workdir": path}, backend="local", home=home, walltime=datetime.timedelta(0, 90, 500))
    job.result(DEADLINE)
    assert job.logs() == f"{path}\n"


@pytest.mark.parametrize(
    "job, options, what", [(3, {}, "not 3"), (b"x", {}, "not b'x'"), ("true", {"name": b"x"}, "name"), (["true", {1}], {}, "run")]
)
def test_other_values_are_refused_with_a_sentence(home, job, options, what):
    with pytest.raises(herdsman.InvalidJobError, match=what):
        herdsman.submit(job, backend="local", home=home, **options)


def test_failures_are_typed(home):
    job = herdsman.submit(["sh", "-c", "exit 3"], backend="local", home=home)
    with pytest.raises(herdsman.JobFailedError, match="exit code 3") as raised:
        job.result(DEADLINE)
    assert raised.value.exit_code == 3 and raised.value.job == job.id
    assert raised.value.failure["reason"] == "rank-failed" and raised.value.hint.startswith("herd logs")


def test_faults_have_the_reason_and_the_hint_of_the_command_line(home):
    with pytest.raises(herdsman.InvalidJobError, match="nodez: unknown key") as raised:
        herdsman.submit(["true"], nodez=3, backend="local", home=home)
    assert raised.value.hint == "did you mean `nodes`?" and raised.value.exit_code == 2
    with pytest.raises(herdsman.NoSuchJobError) as raised:
        herdsman.Job.from_id("nonesuch", home=home)
    assert "herd ls" in raised.value.hint


def test_a_job_is_cancelled(home):
    job = herdsman.submit(["sleep", "600"], backend="local", home=home)
    with pytest.raises(TimeoutError):
        job.wait(0.2)
    assert not job.done()
    job.cancel(grace=1)
    with pytest.raises(herdsman.JobCancelledError):
        job.result(DEADLINE)


def test_output_and_events_are_followed(home):
    job = herdsman.submit("for i in 1 2 3; do echo line $i; done", backend="local", home=home)
    assert list(job.logs(follow=True)) == ["line 1", "line 2", "line 3"]
    assert list(job.events(follow=True))[-1]["state"] == "SUCCEEDED"


def test_from_an_async_program(home):
    async def main():
        job = await aio.submit("echo words", backend="local", home=home)
        lines = [line async for line in aio.logs(job)]
        status = await job
        events = [event async for event in aio.events(job)]
        slow = await aio.submit(["sleep", "600"], backend="local", home=home)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(aio.wait(slow), 0.3)
        await aio.cancel(slow, grace=0.1)
        assert await aio.wait(slow) == "CANCELLED"
        return lines, status["state"], events[-1]["state"]

    assert asyncio.run(main()) == (["words"], "SUCCEEDED", "SUCCEEDED")


def test_a_call_returns(executor):
    base = 40
    future = executor.submit(lambda x, *, y: base + x + y, 1, y=1)
    assert future.result(DEADLINE) == 42
    assert future.job.id and isinstance(executor, concurrent.futures.Executor)


def test_an_exception_comes_back_with_its_traceback(executor):
    def fail():
        raise KeyError("of the job")

    error = executor.submit(fail).exception(DEADLINE)
    assert isinstance(error, KeyError) and error.args == ("of the job",)
    assert "in fail" in str(error.__cause__) and "KeyError: 'of the job'" in str(error.__cause__)


def test_odd_ends_of_calls(executor):
    fates = {
        "vanish": (lambda: os._exit(0), herdsman.JobFailedError, "ended without a result"),
        "killed": (lambda: os.kill(os.getpid(), 9), herdsman.JobFailedError, "FAILED"),
        "unpicklable": (lambda: (n for n in []), TypeError, "cannot be pickled"),
    }
    futures = {name: executor.submit(fate[0]) for name, fate in fates.items()}
    for name, future in futures.items():
        _, kind, text = fates[name]
        with pytest.raises(kind, match=text):
            future.result(DEADLINE)


def test_whatever_a_function_raises_comes_back(executor):
    """As from a ProcessPoolExecutor: also what is no `Exception`."""

    def throw(error):
        raise error

    thrown = [SystemExit(3), KeyboardInterrupt("words"), GeneratorExit()]
    for error, future in zip(thrown, [executor.submit(throw, error) for error in thrown]):
        found = future.exception(DEADLINE)
        assert type(found) is type(error) and found.args == error.args
        assert "in throw" in str(found.__cause__)


def test_many_calls_are_one_array(home):
    with herdsman.Executor(backend="local", home=home) as executor:
        assert list(executor.map(lambda a, b: a * b, range(8), range(8))) == [n * n for n in range(8)]
        assert list(executor.map(str, range(6), chunksize=2)) == list("012345")
        assert list(executor.map(str, [])) == []
        with pytest.raises(ValueError, match="chunksize must be >= 1"):
            executor.map(str, [], chunksize=0)
    jobs = subprocess.run(
        [herdsman._binaries.herd(), "--home", home, "ls", "--all", "-o", "id"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert len(jobs) == 2
    # Nothing of the calls is left.
    assert os.listdir(os.path.join(home, "python")) == []


def test_map_raises_at_the_call_that_failed(executor):
    results = executor.map(lambda n: 1 // n, [1, 0, 2])
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_time_outs_and_cancellation(executor):
    def slow():
        time.sleep(600)

    future = executor.submit(slow)
    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(0.2)
    assert future.cancel() and future.cancelled()
    until(lambda: future.job.state == "CANCELLED")


def test_shutdown_cancels_what_has_not_begun_and_refuses(home, tmp_path):
    executor = herdsman.Executor(backend="local", home=home, cpus=len(os.sched_getaffinity(0)))
    runs, waits = executor.submit(worker_functions.hold, str(tmp_path / "go")), executor.submit(time.sleep, 600)
    results = executor.map(time.sleep, [600] * 3)
    until(runs.running)
    assert not waits.running()
    executor.shutdown(wait=False, cancel_futures=True)
    assert waits.cancelled() and runs.running()
    (tmp_path / "go").touch()
    executor.shutdown()
    # Those that ran were waited for, and so was the end of the others' jobs.
    assert runs.result(0) is None
    assert waits.cancelled() and waits.job.state == "CANCELLED"
    with pytest.raises(concurrent.futures.CancelledError):
        next(results)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(print)


FOLLOWED = """
import asyncio, sys
from herdsman import aio

async def one():
    job = await aio.submit("echo 1; echo 2; printf 3", backend="local", home=sys.argv[1])
    assert [line async for line in aio.logs(job)] == ["1", "2", "3"]
    assert [line async for line in aio.logs(job, tail=1)] == ["3"]
    assert [event async for event in aio.events(job)][-1]["state"] == "SUCCEEDED"
    await job

async def main():
    await asyncio.gather(*[one() for _ in range(8)])
    endless = await aio.submit("while :; do echo line; sleep 0.01; done", backend="local", home=sys.argv[1])
    waiting = asyncio.create_task(aio.wait(endless))
    async for line in aio.logs(endless):
        break
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await aio.cancel(endless)
    async for line in aio.logs(endless):
        break

asyncio.run(main())
"""


def test_following_in_an_async_program_leaves_no_child_and_no_word(host, home):
    code, out, err = host(FOLLOWED, home, env={"PYTHONWARNINGS": "always::ResourceWarning"}).end()
    assert (code, out, err) == (0, "", "")
