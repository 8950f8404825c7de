"""Jobs from Python: handing them over, asking about them, waiting for them.

Everything goes through the command line, so that both always agree. `home` is herd's directory of jobs, as for
`herd --home`.
"""

import json
import operator
import os
import subprocess
from collections.abc import Iterable, Mapping
from datetime import timedelta

from herdsman import _command
from herdsman.errors import InvalidJobError, JobCancelledError, JobFailedError, JobRejectedError

#: States that are not left again.
ENDED = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "REJECTED"})
_RESOURCES = ("cpus", "memory", "gpus", "gpu_type")


def submit(job, *, backend=None, home=None, **options):
    """Hands a job over and returns it.

    `job` is a command as a list of words, a text for a shell, a job file (a path), or what a job file holds (a dict).
    `options` are keys of the job file (`name=`, `nodes=`, `env=`, `walltime=`, …), and those of its `resources`
    (`cpus=`, `memory=`, `gpus=`, `gpu_type=`).
    """
    return hand_over(*_request(job, options), backend, home)


def hand_over(words, stdin, backend, home, owner=None):
    """The job of a command line and a document. On this machine it is cancelled when the process `owner` ends."""
    if backend is not None:
        words = [*words, "-b", backend]
    if owner is not None:
        words = [*words, "--while-process", str(owner)]
    answer = _command.run_json("submit", "-o", "json", *words, home=home, stdin=stdin)
    return Job(answer["id"], home=home)


def _request(job, options):
    if isinstance(job, os.PathLike):
        if options:
            raise TypeError(f"a job file says all of a job; put {', '.join(options)} into it")
        return [os.fspath(job)], None
    if isinstance(job, dict):
        document = job
    elif isinstance(job, str) or (isinstance(job, Iterable) and not isinstance(job, bytes)):
        document = {"run": job if isinstance(job, str) else list(job)}
    else:
        raise InvalidJobError(
            f"a job is a list of words, a text for a shell, a path or a dict, not {job!r}", 'herdsman.submit(["echo", "words"])'
        )
    return ["-"], json.dumps(described(plain(document), plain(options))).encode()


def plain(options):
    """Options as a job file has them, without those that are None: they are not given."""
    return {key: _plain(value, key) for key, value in options.items() if value is not None}


def _plain(value, key):
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Job):
        return value.id
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, timedelta):
        return f"{max(1, round(value.total_seconds() * 1000))}ms"
    if isinstance(value, Mapping):
        return {_plain(name, key): _plain(inner, f"{key}.{name}") for name, inner in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray)):
        return [_plain(inner, key) for inner in value]
    try:
        return operator.index(value)
    except TypeError:
        kind = type(value).__qualname__
        raise InvalidJobError(f"{key}: a job file cannot hold {value!r}, of type {kind}", "give it as a text") from None


def described(document, options):
    """A job file with these options over it."""
    document = dict(document)
    resources = dict(document.get("resources") or {})
    for key, value in options.items():
        if key in _RESOURCES:
            resources[key] = value
        else:
            document[key] = value
    if resources:
        document["resources"] = resources
    return document


def log_words(rank=None, node=None, stream=None, task=None, tail=None):
    """The words by which `herd logs` selects."""
    words = []
    for flag, value in (("--rank", rank), ("--node", node), ("--stream", stream), ("--task", task), ("--tail", tail)):
        if value is not None:
            words += [flag, str(value)]
    return words


def bound(timeout):
    """The words by which `herd wait` waits at most so many seconds; none for ever."""
    return [] if timeout is None else ["--timeout", f"{max(1, round(timeout * 1000))}ms"]


class Job:
    """A job. Awaiting it gives its result."""

    def __init__(self, id, home=None):
        self.id = id
        self._home = home

    @classmethod
    def from_id(cls, id, home=None):
        """The job with this id, the end of one, or a name. NoSuchJobError where there is none."""
        answer = _command.run_json("status", "-o", "json", id, home=home)
        return cls(answer["id"], home=home)

    def __repr__(self):
        return f"Job({self.id!r})"

    def __eq__(self, other):
        return isinstance(other, Job) and self.id == other.id

    def __hash__(self):
        return hash(self.id)

    def _run(self, command, *words):
        return _command.run(command, *words, self.id, home=self._home)

    def _argv(self, command, *words):
        return _command.argv(command, *words, self.id, home=self._home)

    def status(self):
        """All that `herd status -o json` says, as a dict."""
        return json.loads(self._run("status", "-o", "json"))

    @property
    def state(self):
        """Its state now, such as QUEUED, RUNNING or SUCCEEDED."""
        return self.status()["state"]

    def done(self):
        """Whether it has ended."""
        return self.state in ENDED

    def why(self):
        """What it waits for, or why it ended."""
        return json.loads(self._run("why", "-o", "json"))["why"]

    def wait(self, timeout=None):
        """Waits for its end and returns its state. TimeoutError when that takes longer than so many seconds."""
        done = subprocess.run(
            self._argv("wait", *bound(timeout)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=_command.environment(),
            check=False,
        )
        return self._after_wait(done.returncode, done.stderr, timeout)

    def _after_wait(self, code, stderr, timeout):
        """A job may end with the same code as an unsuccessful wait: only its state tells."""
        state = self.state
        if state in ENDED:
            return state
        if timeout is not None:
            raise TimeoutError(f"job {self.id} is {state} after {timeout} s")
        raise _command.understood(stderr, code)

    def result(self, timeout=None):
        """Waits for its end and returns its status. JobFailedError, JobCancelledError or JobRejectedError where it did not
        succeed, TimeoutError after so many seconds."""
        self.wait(timeout)
        return self._result()

    def _result(self):
        status = self.status()
        if status["state"] == "SUCCEEDED":
            return status
        kinds = {"CANCELLED": JobCancelledError, "REJECTED": JobRejectedError}
        raise kinds.get(status["state"], JobFailedError)(
            f"job {self.id} {status['state']}: {status['why']}",
            f"herd logs {self.id}",
            status["exit_code"],
            job=self.id,
            failure=status.get("failure"),
        )

    def logs(self, follow=False, rank=None, node=None, stream=None, task=None, tail=None):
        """What it wrote, as a text; with `follow`, an iterator of lines until it ends."""
        words = log_words(rank, node, stream, task, tail)
        if follow:
            return self._lines("logs", "--follow", *words)
        return self._run("logs", *words).decode("utf-8", "replace")

    def events(self, follow=False):
        """What happened to it: a list of dicts; with `follow`, an iterator until it ends."""
        if follow:
            return map(json.loads, self._lines("events", "-o", "json", "--follow"))
        return [json.loads(line) for line in self._run("events", "-o", "json").splitlines()]

    def _lines(self, command, *words):
        process = subprocess.Popen(
            self._argv(command, *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_command.environment(),
        )
        with process:
            try:
                for line in process.stdout:
                    yield line.decode("utf-8", "replace").rstrip("\n")
            finally:
                process.kill()

    def cancel(self, signal=None, grace=None):
        """Asks it to end; with a signal other than SIGTERM, and so many seconds before its ranks are killed."""
        words = []
        if signal is not None:
            words += ["--signal", str(getattr(signal, "name", signal)).replace("SIG", "")]
        if grace is not None:
            words += ["--grace", f"{round(grace * 1000)}ms"]
        self._run("cancel", *words)

    def __await__(self):
        from herdsman import aio

        return aio.result(self).__await__()
