"""What may go wrong around workers, and must not hang, crash or leave anything: descriptors and processes that run out, full
disks, signals at any moment, forks, interpreters that end, odd ways to start Python."""

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import zipfile

import pytest
import worker_functions
from conftest import DEADLINE, alive, number_in, until

import herdsman
from herdsman.multiprocessing import DefaultLogsSpecs, ProcessFailure, SignalException, Std, start_processes
from herdsman.multiprocessing.errors import ChildFailedError

PACKAGE = os.path.dirname(os.path.abspath(herdsman.__file__))


# Error files


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"message": {"message": "m", "extraInfo": {"timestamp": NaN}}}',
        b'{"message": {"message": "m", "extraInfo": []}}',
        b'{"message": null}',
        b" " * (17 << 20),
    ],
    ids=["no UTF-8", "deep", "NaN", "a list", "null", "large"],
)
def test_row_35_any_error_file_is_an_end_like_others(start, tmp_path, content):
    (tmp_path / "reply").write_bytes(content)
    context = start("sh", [("-c", f"cp {tmp_path}/reply $TORCHELASTIC_ERROR_FILE; exit 4")])
    failure = context.wait(60).failures[0]
    assert failure.exitcode == 4 and "cannot be understood" in failure.message
    assert "exitcode  : 4" in str(ChildFailedError("t", {0: failure}))


def test_row_35_an_error_file_that_is_a_directory(start):
    failure = start("sh", [("-c", "mkdir $TORCHELASTIC_ERROR_FILE; exit 4")]).wait(60).failures[0]
    assert failure.exitcode == 4 and failure.error_file == "<N/A>"


@pytest.mark.parametrize("timestamp", [10**30, -(10**30), 10**12])
def test_row_38_a_time_beyond_all_calendars_is_reported(tmp_path, timestamp):
    path = tmp_path / "e"
    path.write_text(json.dumps({"message": {"message": "m", "extraInfo": {"timestamp": timestamp}}}))
    assert "traceback : m" in str(ChildFailedError("t", {0: ProcessFailure(0, 1, 1, str(path))}))


# Limits


LIMITED = """
import os, resource, sys
import worker_functions
from herdsman.multiprocessing import DefaultLogsSpecs, Std, start_processes
def attempt(entrypoint, args, count=4):
    ranks = range(count)
    specs = DefaultLogsSpecs(sys.argv[1], tee=Std.ALL)
    context = start_processes("t", entrypoint, {r: args for r in ranks}, {r: {} for r in ranks}, specs, start_method="fork")
    result = context.wait(60)
    return result is not None and not result.is_failed()
if __name__ == "__main__":
    assert attempt("true", ()) and attempt(worker_functions.add, (1, 2))
    first = len(os.listdir("/proc/self/fd"))
    before = [name for name in os.listdir("/proc/self/fd") if int(name) > 2]
    kinds = {}
    for more in range(0, 60, 3):
        limit = first + more
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        for entrypoint, args in (("true", ()), (worker_functions.add, (1, 2))):
            try:
                kinds.setdefault(attempt(entrypoint, args), more)
            except OSError as error:
                assert error.errno == 24, error
                kinds.setdefault("refused", more)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    # CPython itself leaves a pipe where it cannot make the second one of a forked process.
    left = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if int(name) > 2]
    left = [what for what in left if "/pipe:" not in what and os.path.exists(what) or "socket" in what or "pidfd" in what]
    assert len(left) <= len(before), left
    assert attempt("true", ()) and attempt(worker_functions.add, (1, 2))
    assert set(kinds) >= {True, "refused"}, kinds
"""


@pytest.mark.slow
def test_without_descriptors_nothing_starts_and_nothing_is_left(host, tmp_path):
    code, _, err = host(LIMITED, tmp_path / "logs").end()
    assert code == 0, err


@pytest.mark.slow
def test_without_processes_nothing_starts(host, tmp_path):
    # The limit counts processes of a user and is none for root.
    script = (
        "import os, resource, sys\nfrom herdsman.multiprocessing import *\nimport worker_functions\n"
        "if __name__ == '__main__':\n"
        "    for entrypoint in ('true', worker_functions.bare_exit):\n"
        "        start_processes('t', entrypoint, {0: ()}, {0: {}}, DefaultLogsSpecs('/dev/null'), start_method='fork').wait()\n"
        "    from herdsman import _binaries\n"
        "    os.environ['HERDSMAN_HERD_NODE'] = _binaries.herd_node()\n"  # which another user may not see
        "    if os.geteuid() == 0:\n"
        "        os.chmod(sys.argv[1], 0o777); os.setgroups([]); os.setgid(54321); os.setuid(54321)\n"
        "    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))\n"
        "    for entrypoint in ('true', worker_functions.bare_exit):\n"
        "        try:\n"
        "            start_processes('t', entrypoint, {0: ()}, {0: {}}, DefaultLogsSpecs('/dev/null'), start_method='fork')\n"
        "        except OSError as error:\n"
        "            assert error.errno == 11, error\n"
        "        else:\n"
        "            raise AssertionError(entrypoint)\n"
    )
    directory = tmp_path / "logs"
    directory.mkdir()
    code, _, err = host(script, directory).end()
    assert code == 0, err


def test_a_full_disk_is_the_workers_own_failure(start, specs, monkeypatch):
    from herdsman.multiprocessing import LogsDest

    class Full(DefaultLogsSpecs):
        def reify(self, envs):
            dest = super().reify(envs)
            return LogsDest(
                stdouts={0: "/dev/full"}, stderrs={0: ""}, tee_stdouts={}, tee_stderrs={}, error_files=dest.error_files
            )

    result = start("sh", [("-c", "exec seq 1 100000")], logs_specs=Full(specs().root_log_dir)).wait(60)
    assert result.failures[0].exitcode == 1


SHOW_TO_FULL = """
import sys
from herdsman.multiprocessing import DefaultLogsSpecs, Std, start_processes
context = start_processes("t", "seq", {0: (1, 1000)}, {0: {}}, DefaultLogsSpecs(sys.argv[1], tee=Std.OUT))
result = context.wait(60)
sys.stderr.write(open(result.stdouts[0]).read()[-5:])
sys.stderr.flush()
import os
os._exit(result.is_failed())
"""


def test_a_stream_that_takes_nothing_costs_no_line_of_the_files(host, tmp_path):
    with open("/dev/full", "w") as full:
        running = host(SHOW_TO_FULL, tmp_path, stdout=full)
    _, err = running.process.communicate(timeout=DEADLINE)
    assert running.process.returncode == 0 and "1000\n" in err, err


# Signals


def test_a_signal_at_any_moment_loses_nothing(start):
    """The host catches the exception and goes on waiting, again and again."""
    context = start(worker_functions.large, [(20,)] * 2, start_method="fork")
    hang_up, host, stop = {signal.SIGHUP}, threading.get_ident(), threading.Event()

    def disturb():
        while not stop.wait(0.002):
            # To the thread that waits, where it may be blocked: the others never have it.
            signal.pthread_kill(host, signal.SIGHUP)

    def wait():
        """Waits a while. Only meanwhile does a signal come through: what catches the exception must not get the next one."""
        try:
            try:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, hang_up)
                return context.wait(0.5)
            finally:
                signal.pthread_sigmask(signal.SIG_BLOCK, hang_up)
        except SignalException:
            return "disturbed"

    end = time.monotonic() + DEADLINE
    signal.pthread_sigmask(signal.SIG_BLOCK, hang_up)
    disturber = threading.Thread(target=disturb)
    disturber.start()
    result, disturbed = None, 0
    try:
        while result is None and time.monotonic() < end:
            result = wait()
            if result == "disturbed":
                result, disturbed = None, disturbed + 1
                if disturbed == 50:
                    stop.set()
    finally:
        stop.set()
        disturber.join()
        # With one that is under way.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, hang_up)
    assert disturbed, "no signal came"
    result = result or context.wait(60)
    assert not result.is_failed() and [len(result.return_values[rank]) for rank in range(2)] == [20 << 20] * 2


INTERRUPTED = """
import os, signal, sys, threading
os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = "SIGTERM"
from herdsman.multiprocessing import *
import worker_functions
if __name__ == "__main__":
    entrypoint, args = ("sh", ("-c", "echo $$ > $0; exec sleep 600", sys.argv[2])) if sys.argv[1] == "program" else \\
        (worker_functions.write_pid_and_sleep, (sys.argv[2],))
    context = start_processes("t", entrypoint, {0: args}, {0: {}}, DefaultLogsSpecs(sys.argv[3], tee=Std.ALL), start_method="fork")
    print("started", flush=True)
    context.wait()
"""


@pytest.mark.parametrize("kind", ["program", "function"])
def test_an_interrupt_ends_the_wait_and_the_workers(host, tmp_path, kind):
    running = host(INTERRUPTED, kind, tmp_path / "pid", tmp_path / "logs")
    assert running.line() == "started"
    pid = until(lambda: number_in(tmp_path / "pid"))
    running.process.send_signal(signal.SIGINT)
    code, _, err = running.end()
    assert code == -signal.SIGINT and "KeyboardInterrupt" in err
    until(lambda: not alive(pid))


# Ends of interpreters


LEFT = """
import sys
from herdsman.multiprocessing import *
import worker_functions
if __name__ == "__main__":
    kind, path, logs = sys.argv[1:]
    if kind == "program":
        entrypoint, args = "sh", ("-c", "echo $$ > $0; while :; do echo line; done", path)
    else:
        entrypoint, args = worker_functions.write_pid_and_print, (path,)
    context = start_processes("t", entrypoint, {0: args}, {0: {}}, DefaultLogsSpecs(logs, tee=Std.OUT), start_method=sys.argv[1] if kind != "program" else "spawn")
    import os, time
    end = time.monotonic() + 60
    while not (os.path.exists(path) and open(path).read().endswith("\\n")) and time.monotonic() < end:
        time.sleep(0.01)
    context.wait(0.2)
"""


@pytest.mark.parametrize("kind", ["program", "fork", "forkserver"])
def test_an_interpreter_that_ends_ends_its_workers(host, tmp_path, kind):
    """With threads that show lines on its streams until the last moment."""
    with open(tmp_path / "out", "wb") as out:
        running = host(LEFT, kind, tmp_path / "pid", tmp_path / "logs", stdout=out)
    _, err = running.process.communicate(timeout=DEADLINE)
    assert running.process.returncode == 0, err
    assert "Fatal" not in err and "Traceback" not in err, err
    pid = number_in(tmp_path / "pid")
    until(lambda: not alive(pid))
    assert set((tmp_path / "out").read_text().splitlines()) == {"[t0]:line"}


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_worker_may_start_workers_and_leave_them(start, tmp_path, method):
    context = start(worker_functions.start_and_leave, [(str(tmp_path), method)], start_method=method)
    result = context.wait(60)
    assert result is not None and result.return_values == {0: "left"}, result
    for name in ("program", "function"):
        pid = until(lambda: number_in(tmp_path / name))
        until(lambda: not alive(pid), name)


# Forks and threads


def test_forked_workers_print_whatever_threads_hold(start, capfd):
    """Threads of the host show lines all the time, on the streams that the forked functions print to."""
    noisy = start("sh", [("-c", "while :; do echo noise; done")], tee=Std.OUT)
    for _ in range(20):
        context = start(worker_functions.print_and_return, [()] * 2, start_method="fork", tee=Std.OUT)
        result = context.wait(30)
        assert result is not None, "a forked worker hangs"
        assert not result.is_failed()
    noisy.close(timeout=0)


# Values


def test_a_value_that_cannot_be_unpickled_is_a_failure(start):
    context = start(worker_functions.return_a_trap, [()], start_method="fork")
    failure = context.wait(60).failures[0]
    assert failure.message == "what the worker returned cannot be unpickled: RuntimeError: trap"


@pytest.mark.slow
def test_row_30_a_hundred_megabytes(start):
    assert len(start(worker_functions.large, [(100,)], start_method="fork").wait(120).return_values[0]) == 100 << 20


def test_arguments_that_cannot_be_pickled_start_nothing(start):
    with pytest.raises(Exception, match="pickle|local object"):
        start(worker_functions.add, [(1, 2), (lambda: None, 2)], start_method="spawn")


# Where and how Python runs


RUN = """
import os, sys
sys.path[:0] = sys.argv[3:]
from herdsman.multiprocessing import *
import worker_functions
if __name__ == "__main__":
    specs = DefaultLogsSpecs(sys.argv[1], redirects=Std.OUT, tee=Std.OUT)
    os.chdir("/")
    for entrypoint, args in (("sh", ("-c", "cd /tmp; echo x; exit 3")), (worker_functions.fail, ("why",))):
        result = start_processes("t", entrypoint, {0: args}, {0: {}}, specs, start_method=sys.argv[2]).wait(60)
        assert result.failures[0].exitcode in (1, 3), result
        assert os.path.isabs(result.stdouts[0]) and os.path.isabs(result.failures[0].error_file) or entrypoint == "sh"
    assert result.failures[0].message["message"] == "ValueError: why"
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
@pytest.mark.parametrize("flags", [["-I"], ["-S"], ["-I", "-S", "-X", "dev"], ["-OO"]], ids=" ".join)
def test_python_may_be_started_in_any_way(tmp_path, flags, method):
    (tmp_path / "main.py").write_text(RUN)
    (tmp_path / "logs").mkdir()
    paths = [os.path.dirname(PACKAGE), os.path.dirname(os.path.abspath(worker_functions.__file__))]
    command = [sys.executable, *flags, "main.py", "logs", method, *paths]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE * 2, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[t0]:x\n"


def test_a_relative_log_directory_stays_where_it_was(start, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    specs = DefaultLogsSpecs("logs", redirects=Std.OUT)
    assert specs.root_log_dir == "logs"
    context = start("sh", [("-c", "cd /; echo here; echo broken > $TORCHELASTIC_ERROR_FILE; exit 3")], logs_specs=specs)
    monkeypatch.chdir("/")
    result = context.wait(60)
    assert open(result.stdouts[0]).read() == "here\n" and "cannot be understood" in result.failures[0].message


def test_from_a_zip_file_it_says_why_not(tmp_path):
    archive = tmp_path / "packages.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for directory, _, names in os.walk(PACKAGE):
            for name in names:
                if name.endswith(".py"):
                    path = os.path.join(directory, name)
                    file.write(path, os.path.relpath(path, os.path.dirname(PACKAGE)))
    script = f"import sys; sys.path = [{str(archive)!r}] + [p for p in sys.path if 'site-packages' not in p]"
    script += "; import herdsman.multiprocessing"
    done = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "native module cannot be loaded" in done.stderr
    assert "hint: install the package" in done.stderr


def test_in_a_host_that_ignores_sigchld(host, tmp_path):
    script = (
        "import signal, sys\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nimport herdsman, worker_functions\n"
        "from herdsman.multiprocessing import *\n"
        "if __name__ == '__main__':\n"
        "    for entrypoint, args, code in (('sh', ('-c', 'exit 3'), 3), (worker_functions.exit_with, (5,), 5)):\n"
        "        c = start_processes('t', entrypoint, {0: args}, {0: {}}, DefaultLogsSpecs('/dev/null'), start_method='fork')\n"
        "        assert c.wait(60).failures[0].exitcode == code\n"
        "    try:\n        herdsman.submit(['true'], backend='local', home=sys.argv[1], nodez=3)\n"
        "    except herdsman.InvalidJobError as error:\n        pass\n"
        "    try:\n        herdsman.submit(['sh', '-c', 'exit 3'], backend='local', home=sys.argv[1]).result(60)\n"
        "    except herdsman.JobFailedError as error:\n        assert error.exit_code == 3\n"
    )
    code, _, err = host(script, tmp_path / "home").end()
    assert code == 0, err
