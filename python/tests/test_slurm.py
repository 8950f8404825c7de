"""Jobs and functions on a real Slurm cluster, which `lab/slurm` brings up on this machine (needs root)."""

import asyncio
import concurrent.futures
import os
import signal
import threading
import time

import pytest
from conftest import until
from slurm_lab import SlurmLab

import herdsman
from herdsman import aio

pytestmark = pytest.mark.slurm

#: A job's way through Slurm takes seconds on an idle machine.
DEADLINE = 120.0


@pytest.fixture(scope="module")
def cluster():
    lab = SlurmLab("--no-accounting")
    yield lab
    lab.down()


@pytest.fixture(autouse=True)
def inside(cluster, monkeypatch):
    """This process is one of a login node."""
    for name, value in cluster.env.items():
        if os.environ.get(name) != value:
            monkeypatch.setenv(name, value)
    for name in ("SLURM_JOB_ID", "HERD_JOB_ID", "HERD_CONFIG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def executor(home):
    with herdsman.Executor(backend="slurm", home=home, walltime="10m", slurm={"partition": "all"}) as executor:
        yield executor


def test_a_call_runs_on_a_node_and_returns(executor):
    def where(x, *, y):
        import os
        import socket

        return x + y, socket.gethostname(), os.environ["SLURM_JOB_ID"]

    future = executor.submit(where, 40, y=2)
    value, host, slurm_job = future.result(DEADLINE)
    assert value == 42 and host.startswith("node") and slurm_job.isdigit()
    assert future.job.state == "SUCCEEDED" or future.job.wait(DEADLINE) == "SUCCEEDED"
    assert future.job.status()["backend"] == "slurm"


def test_an_exception_comes_back_with_its_traceback(executor):
    def fail():
        raise KeyError("of the node")

    error = executor.submit(fail).exception(DEADLINE)
    assert isinstance(error, KeyError) and error.args == ("of the node",)
    assert "in fail" in str(error.__cause__) and "KeyError: 'of the node'" in str(error.__cause__)


def test_many_calls_are_one_array(executor, home):
    results = executor.map(lambda n: (n * n, os.environ["HERD_JOB_ID"], os.environ["HERD_ARRAY_INDEX"]), range(20))
    found = list(results)
    assert [square for square, _, _ in found] == [n * n for n in range(20)]
    assert len({job for _, job, _ in found}) == 1
    assert [int(index) for _, _, index in found] == list(range(20))


def test_a_call_is_cancelled(executor, cluster):
    future = executor.submit(time.sleep, 600)
    until(lambda: future.job.state == "RUNNING", seconds=DEADLINE)
    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(0.2)
    assert future.cancel() and future.cancelled()
    assert future.job.wait(DEADLINE) == "CANCELLED"


def test_a_job_beyond_its_time_fails_with_that_reason(home):
    with herdsman.Executor(backend="slurm", home=home, walltime="3s") as executor:
        future = executor.submit(time.sleep, 600)
        with pytest.raises(herdsman.JobFailedError) as raised:
            future.result(DEADLINE)
    assert raised.value.failure["reason"] == "time-limit"


def test_jobs_have_the_same_interface_as_here(home):
    job = herdsman.submit("echo out of $SLURM_JOB_NODELIST", backend="slurm", home=home, nodes=2)
    assert job.result(DEADLINE)["exit_code"] == 0
    assert "out of node[" in job.logs(rank=0)
    assert job.events()[-1]["state"] == "SUCCEEDED" and job.why()
    assert herdsman.Job.from_id(job.id, home=home) == job
    failed = herdsman.submit(["sh", "-c", "exit 3"], backend="slurm", home=home)
    with pytest.raises(herdsman.JobFailedError) as raised:
        failed.result(DEADLINE)
    assert raised.value.exit_code == 3


def test_faults_have_the_reason_of_slurm(home):
    with pytest.raises(herdsman.HerdError) as raised:
        herdsman.submit(["true"], backend="slurm", home=home, slurm={"partition": "nonesuch"})
    assert "nonesuch" in raised.value.reason


def test_from_an_async_program(home):
    async def main():
        job = await aio.submit("for i in 1 2 3; do echo $i; done", backend="slurm", home=home)
        lines = [line async for line in aio.logs(job)]
        status = await job
        slow = await aio.submit(["sleep", "600"], backend="slurm", home=home)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(aio.wait(slow), 0.3)
        await aio.cancel(slow)
        return lines, status["state"], await aio.wait(slow, DEADLINE)

    assert asyncio.run(main()) == (["1", "2", "3"], "SUCCEEDED", "CANCELLED")


def test_from_a_thread(executor):
    found = []
    thread = threading.Thread(target=lambda: found.append(executor.submit(pow, 2, 5).result(DEADLINE)))
    thread.start()
    thread.join(DEADLINE)
    assert found == [32]


SUBMITTER = """
import sys, time
import herdsman
executor = herdsman.Executor(backend="slurm", home=sys.argv[1])
future = executor.submit(time.sleep, 4)
job = herdsman.submit("sleep 4; echo done", backend="slurm", home=sys.argv[1])
print(future.job.id, job.id, flush=True)
if sys.argv[2] == "waits":
    future.result()
"""


def test_calls_end_with_the_interpreter_and_jobs_do_not(host, home):
    code, out, err = host(SUBMITTER, home, "ends").end()
    assert code == 0 and not err, err
    call, job = (herdsman.Job.from_id(id, home=home) for id in out.split())
    assert (call.wait(DEADLINE), job.wait(DEADLINE)) == ("CANCELLED", "SUCCEEDED")
    assert os.listdir(os.path.join(home, "python")) == []


def test_jobs_outlive_whoever_was_killed(host, home):
    running = host(SUBMITTER, home, "waits")
    ids = running.line().split()
    running.process.send_signal(signal.SIGKILL)
    running.process.wait()
    call, job = (herdsman.Job.from_id(id, home=home) for id in ids)
    assert call.wait(DEADLINE) == job.wait(DEADLINE) == "SUCCEEDED"
    assert job.logs() == "done\n"
