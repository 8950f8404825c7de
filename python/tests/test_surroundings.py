"""What may be around: threads, handlers of the host's own, closed streams, terminals, many workers; and what an import
costs."""

import os
import signal
import subprocess
import sys
import threading

import pytest
import worker_functions
from conftest import DEADLINE, until

from herdsman.multiprocessing import Std

IMPORT = """
import os, sys, threading
before = set(os.listdir("/proc/self/fd"))
import herdsman, herdsman.multiprocessing
heavy = {"torch", "logging", "dataclasses", "subprocess", "json", "typing", "multiprocessing", "asyncio", "tempfile"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
assert threading.active_count() == 1
assert set(os.listdir("/proc/self/fd")) == before
assert len(os.listdir("/proc/self/task")) == 1
"""


def test_an_import_starts_nothing_and_opens_nothing():
    subprocess.run([sys.executable, "-S", "-c", f"import sys; sys.path = {sys.path!r}\n{IMPORT}"], check=True)


@pytest.mark.parametrize("entrypoint, args", [("true", ()), (worker_functions.add, (1, 2))])
def test_from_a_thread_that_ends(start, entrypoint, args, caplog):
    found = []
    contexts = []

    def begin():
        contexts.append(start("sh", [("-c", 'read x < "$0"; exit 0', found[0])]) if entrypoint == "true" else None)
        contexts.append(start(entrypoint, [args], start_method="fork"))

    fifo = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"herdsman-fifo-{os.getpid()}-{threading.get_ident()}")
    os.mkfifo(fifo)
    try:
        found.append(fifo)
        thread = threading.Thread(target=begin)
        thread.start()
        thread.join()
        # The thread that started them has ended; the workers have not.
        if contexts[0] is not None:
            assert contexts[0].wait(0.2) is None
            # For both, so that it waits for nobody.
            with open(fifo, "r+b", buffering=0) as file:
                file.write(b"x\n")
                assert not contexts[0].wait(60).is_failed()
        assert not contexts[1].wait(60).is_failed()
    finally:
        os.unlink(fifo)
    assert "Failed to register signal handlers since torchelastic is running on a child thread" in caplog.text


HANDLERS = """
import os, signal, sys
seen = []
def reap(number, frame):
    # What a host may do: it takes the status of every child.
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            seen.append(pid)
    except ChildProcessError:
        pass
mine = lambda number, frame: seen.append("TERM")
os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = "SIGHUP"
signal.signal(signal.SIGCHLD, reap)
signal.signal(signal.SIGTERM, mine)
from herdsman.multiprocessing import DefaultLogsSpecs, start_processes
import worker_functions
if __name__ == "__main__":
    for entrypoint, args, good in (
        ("sh", ("-c", "exit 3"), False),
        ("true", (), True),
        (worker_functions.add, (1, 2), True),
        (worker_functions.exit_with, (5,), False),
    ):
        specs = DefaultLogsSpecs(sys.argv[1])
        result = start_processes("t", entrypoint, {0: args, 1: args}, {0: {}, 1: {}}, specs, start_method="fork").wait(60)
        assert result is not None and result.is_failed() != good, (entrypoint, result)
        if not good:
            assert all(f.exitcode in (3, 5, -15) for f in result.failures.values()), result
    assert signal.getsignal(signal.SIGTERM) is mine and signal.getsignal(signal.SIGCHLD) is reap
    os.kill(os.getpid(), signal.SIGTERM)
    assert "TERM" in seen
"""


def test_in_a_host_that_handles_its_own_signals_and_children(host, tmp_path):
    code, _, err = host(HANDLERS, tmp_path).end()
    assert code == 0, err


CLOSED = """
import os, sys
from herdsman.multiprocessing import DefaultLogsSpecs, Std, start_processes
for number in map(int, sys.argv[2].split(",")):
    os.close(number)
specs = DefaultLogsSpecs(sys.argv[1], tee=Std.OUT)
result = start_processes("t", "sh", {0: ("-c", "echo out; exit 3")}, {0: {}}, specs).wait(60)
assert open(result.stdouts[0]).read() == "out\\n"
os._exit(result.failures[0].exitcode)
"""


@pytest.mark.parametrize("closed", ["1", "0,1", "0,1,2"])
def test_with_closed_streams(host, tmp_path, closed):
    assert host(CLOSED, tmp_path, closed).end()[0] == 3


def test_on_a_terminal(host, tmp_path):
    parent, child = os.openpty()
    script = "import sys\nfrom herdsman.multiprocessing import *\n"
    script += "c = start_processes('t', 'sh', {0: ('-c', 'tty; read x; echo got $x')}, {0: {}}, DefaultLogsSpecs(sys.argv[1]))\n"
    script += "sys.exit(c.wait().is_failed())\n"
    running = host(script, tmp_path, stdin=child, stdout=child, stderr=child)
    os.close(child)
    os.write(parent, b"words\n")
    assert running.process.wait(DEADLINE) == 0
    shown = b""
    while b"got words" not in shown:
        shown += os.read(parent, 4096)
    os.close(parent)


def test_stdin_is_shared(host, tmp_path):
    script = "import sys\nfrom herdsman.multiprocessing import *\n"
    script += "c = start_processes('t', 'cat', {0: ()}, {0: {}}, DefaultLogsSpecs(sys.argv[1]))\nc.wait()\n"
    running = host(script, tmp_path, stdin=subprocess.PIPE)
    out, err = running.process.communicate("through\n", timeout=DEADLINE)
    assert out == "through\n", err


def test_sixty_four_workers(start):
    context = start("sh", [("-c", f"echo {rank}; exit 0") for rank in range(64)], tee=Std.ALL)
    result = context.wait(120)
    assert not result.is_failed() and result.return_values == dict.fromkeys(range(64))
    assert [open(result.stdouts[rank]).read() for rank in range(64)] == [f"{rank}\n" for rank in range(64)]


def test_no_descriptor_and_no_process_is_left(start):
    def begin():
        start("true", [()] * 4, tee=Std.ALL).wait(60)
        start(worker_functions.add, [(1, 2)] * 2, start_method="fork").wait(60)

    begin()
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(5):
        begin()
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before
    children = open(f"/proc/self/task/{os.getpid()}/children").read().split()
    # multiprocessing keeps its own resource tracker and fork server.
    names = [open(f"/proc/{pid}/cmdline").read() for pid in children]
    assert not any("supervise" in name for name in names)


def test_two_contexts_at_once(start):
    first, second = start("sleep", [("600",)]), start("sh", [("-c", "exit 4")])
    assert second.wait(60).failures[0].exitcode == 4
    assert first.wait(0) is None
    first.close()


def test_a_fork_of_the_host_leaves_its_workers_alone(start):
    context = start("sleep", [("600",)])
    pid = os.fork()
    if pid == 0:
        # As at the end of an ordinary child: what it has of the context goes.
        context._supervised._native = None
        os._exit(0)
    os.waitpid(pid, 0)
    assert context.wait(0.3) is None
    until(lambda: context.pids()[0])


def test_a_worker_is_a_process_like_popen_has_it(start):
    context = start("sh", [("-c", "trap 'exit 9' USR1; while :; do sleep 0.05; done")])
    process = context.subprocess_handlers[0].proc
    assert process.poll() is None and process.returncode is None
    assert process.args[:2] == ("sh", "-c")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.05)
    process.send_signal(signal.SIGKILL)
    assert process.wait(60) == -9 == process.poll()
    assert context.wait(60).failures[0].exitcode == -9


def test_one_handler_alone(tmp_path):
    from herdsman.multiprocessing.subprocess_handler import get_subprocess_handler

    handler = get_subprocess_handler("sleep", ("600",), {"A": "1"}, str(tmp_path / "o"), None, 3)
    assert handler.local_rank_id == 3
    handler.close()
    assert handler.proc.wait(60) == -15
