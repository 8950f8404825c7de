"""Functions as jobs: a `concurrent.futures.Executor` whose workers are jobs of herd.

A call goes into a directory as a file, the job's process (`herdsman._call`) reads it, and leaves what it returned or raised
beside it. One thread per executor looks for results (`herdsman._pool`).
"""

import json
import os
import sys
import time
import weakref
from concurrent.futures import Executor as _Base

from herdsman import _folder, jobs
from herdsman._calls import MARK
from herdsman._pool import Pool
from herdsman.errors import InvalidJobError

_RANKS = "herdsman.submit runs programs with several ranks"
#: Options that a job may have and a call may not: the value that a call has, and a hint.
_FIXED = {
    "run": (None, "herdsman.submit runs commands"),
    "array": (None, "Executor.map makes an array of many calls"),
    "nodes": (1, _RANKS),
    "procs_per_node": (1, _RANKS),
    "type": ("command", _RANKS),
    "launcher": (None, _RANKS),
}


class Executor(_Base):
    """Runs functions as jobs of a backend. `options` are those of `herdsman.submit`: `cpus=`, `memory=`, `walltime=`, ….

    A call has one CPU unless `cpus` or `gpus` say otherwise; on this machine it waits for that. At most `max_workers` calls
    of `submit`, and of each `map`, run at once; without it, as many as the backend has room for. `folder` is where calls and
    results are kept, on a disk that the backend's nodes see; without one it is below herd's directory of jobs. Each call is a
    process of its own, in which `initializer(*initargs)` runs first. `python` is the interpreter of the jobs, of the same
    version as this one. Jobs end with this process.
    """

    def __init__(
        self,
        backend=None,
        *,
        max_workers=None,
        initializer=None,
        initargs=(),
        folder=None,
        home=None,
        python=None,
        **options,
    ):
        if backend is not None and not isinstance(backend, str):
            raise TypeError(f"the backend is a name such as local or slurm, not {backend!r}\nhint: max_workers={backend!r}")
        if max_workers is not None and max_workers < 1:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        for key, (value, hint) in _FIXED.items():
            if options.get(key) not in (None, value):
                raise InvalidJobError(f"{key}: an executor does not take it, since each call is one process", hint)
        self._initializer = initializer and (initializer, initargs)
        self._limit = "" if max_workers is None else f"%{max_workers}"
        self._backend = backend
        self._home = home
        self._options = {key: value for key, value in jobs.plain(options).items() if key not in _FIXED}
        # A call that waits for one that it has made itself must not hold what that waits for.
        asked = {"cpus", "gpus"} & {*options, *(options.get("resources") or ())}
        self._of_one_call = {} if asked or MARK in os.environ else {"cpus": 1}
        self._python = python or sys.executable
        self._pool = Pool(folder or _folder.default_parent(home), self._hand_over(), home, max_workers)
        # One that nobody has any more takes no more calls.
        weakref.finalize(self, self._pool.close, wait=False).atexit = False

    def submit(self, fn, /, *args, **kwargs):
        """Runs `fn(*args, **kwargs)` as a job of its own. The future has its `job`, None while it waits for one of
        `max_workers`."""
        return self._start([(fn, args, kwargs)], True, {**self._options, **self._of_one_call})[0]

    def map(self, fn, *iterables, timeout=None, chunksize=1):
        """As the built-in `map`, with all calls as the tasks of one array job. `chunksize` calls share a task."""
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        calls = [(fn, args, {}) for args in zip(*iterables)]
        if chunksize > 1:
            chunks = [calls[at : at + chunksize] for at in range(0, len(calls), chunksize)]
            calls = [(_run_chunk, (chunk,), {}) for chunk in chunks]
        options = {**self._options, "array": f"0-{len(calls) - 1}{self._limit}"}
        futures = self._start(calls, False, options) if calls else []
        return _results(futures, timeout, chunksize > 1)

    def _start(self, calls, is_single, options):
        name = _name(calls[0][0])
        if self._initializer:
            calls = [(_run_initialized, (*self._initializer, call), {}) for call in calls]
        return self._pool.start(calls, is_single, document=jobs.described({"name": name}, options))

    def _hand_over(self):
        """Hands over the job of a batch; it does not keep this executor."""
        backend, home, python = self._backend, self._home, self._python

        def hand_over(batch, document):
            env = document.get("env") or {}
            # The job must find this package and what functions are imported from.
            entries = [_own_directory(), env.get("PYTHONPATH", os.environ.get("PYTHONPATH"))]
            path = os.pathsep.join(entry for entry in entries if entry)
            document["env"] = {**env, "PYTHONPATH": path, MARK: "1"}
            document["run"] = [python, "-m", "herdsman._call", batch.directory, "call" if batch.is_single else "task"]
            job = jobs.hand_over(["-"], json.dumps(document).encode(), backend, home, os.getpid())
            batch.begun(job, bool(document.get("retry")))

        return hand_over

    def shutdown(self, wait=True, *, cancel_futures=False):
        """Takes no more calls. With `cancel_futures`, those that have not begun are cancelled. Waits for those that run, and
        for the end of jobs that were cancelled."""
        self._pool.close(wait, cancel_futures)

    def __exit__(self, kind, value, traceback):
        # Who asks for the end of the program does not want to wait for what runs.
        self._pool.close(True, cancel_running=kind is not None and issubclass(kind, KeyboardInterrupt))
        return False


def _run_initialized(initializer, initargs, call):
    initializer(*initargs)
    fn, args, kwargs = call
    return fn(*args, **kwargs)


def _run_chunk(calls):
    return [fn(*args, **kwargs) for fn, args, kwargs in calls]


def _results(futures, timeout, chunked):
    end = None if timeout is None else time.monotonic() + timeout

    def iterate():
        try:
            for future in futures:
                value = future.result(None if end is None else max(0, end - time.monotonic()))
                if chunked:
                    yield from value
                else:
                    yield value
        finally:
            for future in futures:
                future.cancel()

    return iterate()


def _name(fn):
    name = getattr(fn, "__name__", type(fn).__name__)
    return "".join(letter if letter.isalnum() else "-" for letter in name).strip("-")[:60] or "call"


def _own_directory():
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
