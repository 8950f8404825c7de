"""What the tests of the package share: waiting for conditions, looking at processes, running a host program."""

import os
import signal
import subprocess
import sys
import time

import pytest

sys.path.insert(0, os.path.dirname(__file__))

#: Far beyond what anything takes on a loaded machine.
DEADLINE = 60.0


def until(condition, what="the condition", seconds=DEADLINE):
    """Waits for a condition and returns what it gave."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"{what} did not come about within {seconds} s"
        time.sleep(0.01)


def alive(pid):
    """Whether a process has not ended; a zombie has."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def number_in(path):
    """The number in a file that another process writes, None while it is not whole."""
    try:
        text = open(path).read()
    except FileNotFoundError:
        return None
    return int(text) if text.endswith("\n") else None


class Host:
    """A program that uses the package, as a process of its own."""

    def __init__(self, process):
        self.process = process

    def line(self):
        line = self.process.stdout.readline()
        assert line, f"the host ended: {self.process.wait()}, {self.process.stderr.read()}"
        return line.rstrip("\n")

    def end(self):
        out, err = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, out, err


@pytest.fixture
def host(tmp_path):
    """Starts Python with a text as its main module."""
    started = []

    def start(source, *args, python=sys.executable, **options):
        path = tmp_path / f"host{len(started)}.py"
        path.write_text(source)
        paths = [os.path.dirname(__file__), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **options.pop("env", {})}
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        process = subprocess.Popen([python, str(path), *map(str, args)], env=env, **options)
        started.append(process)
        return Host(process)

    yield start
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home for jobs, whose CPUs are leased among themselves."""
    monkeypatch.setenv("HERD_LEASE_DIR", str(tmp_path / "leases"))
    return str(tmp_path / "home")


@pytest.fixture
def executor(home):
    """Functions as jobs on this machine."""
    import herdsman

    with herdsman.Executor(backend="local", home=home) as executor:
        yield executor


@pytest.fixture(autouse=True)
def handlers_as_before():
    """`PContext.start` installs signal handlers and never takes them back."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before):
        signal.signal(number, handler)


@pytest.fixture
def specs(tmp_path):
    """`DefaultLogsSpecs` below a directory of the test."""
    from herdsman.multiprocessing import DefaultLogsSpecs

    def make(**options):
        return DefaultLogsSpecs(log_dir=str(tmp_path / "logs"), **options)

    return make


@pytest.fixture
def start(specs):
    """Starts workers with the same arguments for each rank, and closes what a test leaves."""
    from herdsman.multiprocessing import start_processes

    contexts = []

    def begin(entrypoint, args, envs=None, **options):
        logs = {key: options.pop(key) for key in ("redirects", "tee", "local_ranks_filter") if key in options}
        if not isinstance(args, dict):
            args = dict(enumerate(args))
        envs = envs or {rank: {} for rank in args}
        options.setdefault("logs_specs", None)
        if options["logs_specs"] is None:
            options["logs_specs"] = specs(**logs)
        context = start_processes("t", entrypoint, args, envs, **options)
        contexts.append(context)
        return context

    yield begin
    for context in contexts:
        context.close(timeout=0)
