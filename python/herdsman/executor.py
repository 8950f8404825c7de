"""Functions as jobs: a `concurrent.futures.Executor` whose workers are jobs of herd.

A call goes into a directory as a file, the job's process (`herdsman._call`) reads it, and leaves what it returned or raised
beside it. One thread per executor looks for results.
"""

import atexit
import os
import shutil
import sys
import threading
import time
import weakref
from concurrent.futures import Executor as _Base
from concurrent.futures import Future

from herdsman import jobs
from herdsman._calls import read_result, write_calls
from herdsman.errors import HerdError, JobFailedError

#: Seconds between looks at results: the first, and the longest.
_PAUSES = (0.002, 0.05)
#: Seconds between questions whether jobs have ended without a result.
_STATE_SECONDS = 1.0


class Executor(_Base):
    """Runs functions as jobs of a backend. `options` are those of `herdsman.submit`: `cpus=`, `memory=`, `walltime=`, ….

    `folder` is where calls and results are kept, on a disk that the backend's nodes see; without one it is below herd's
    directory of jobs. It is removed at the end. `max_workers` calls of one `map` run at once, by default as many as the
    backend has room for. Each call is a process of its own, in which `initializer(*initargs)` runs first. `python` is the
    interpreter of the jobs, of the same version as this one.
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
        self._initializer = initializer and (initializer, initargs)
        self._limit = "" if max_workers is None else f"%{max_workers}"
        self._backend = backend
        self._home = home
        self._options = options
        self._python = python or sys.executable
        self._folder = _make_folder(folder, home)
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._batches = []
        self._count = 0
        self._closed = False
        self._thread = None
        self._process = os.getpid()
        _open.add(self)

    def submit(self, fn, /, *args, **kwargs):
        """Runs `fn(*args, **kwargs)` as a job of its own. The future has its `job`."""
        return self._start([(fn, args, kwargs)], {})[0]

    def map(self, fn, *iterables, timeout=None, chunksize=1):
        """As the built-in `map`, with all calls as the tasks of one array job. `chunksize` calls share a task."""
        calls = [(fn, args, {}) for args in zip(*iterables)]
        if chunksize > 1:
            chunks = [calls[at : at + chunksize] for at in range(0, len(calls), chunksize)]
            calls = [(_run_chunk, (chunk,), {}) for chunk in chunks]
        futures = self._start(calls, {"array": f"0-{len(calls) - 1}{self._limit}"}) if calls else []
        return _results(futures, timeout, chunksize > 1)

    def _start(self, calls, more):
        directory = self._next_directory()
        name = _name(calls[0][0])
        if self._initializer:
            calls = [(_run_initialized, (*self._initializer, call), {}) for call in calls]
        write_calls(directory, calls)
        command = [self._python, "-m", "herdsman._call", directory]
        document = jobs.described({"run": command, "name": name}, {**self._options, **more})
        env = document.get("env") or {}
        # The job must find this package and what functions are imported from.
        path = os.pathsep.join(entry for entry in [_own_directory(), env.get("PYTHONPATH", os.environ.get("PYTHONPATH"))] if entry)
        document["env"] = {**env, "PYTHONPATH": path}
        job = jobs.submit(document, backend=self._backend, home=self._home)
        batch = _Batch(job, directory, len(calls), bool(document.get("retry")))
        with self._news:
            self._batches.append(batch)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="herdsman-executor", daemon=True)
                self._thread.start()
            self._news.notify_all()
        return batch.futures

    def _next_directory(self):
        if self._process != os.getpid():
            raise RuntimeError(
                "this executor is of the process that this one was forked from, whose thread looks for its results\n"
                "hint: make an executor after the fork"
            )
        with self._lock:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._count += 1
            directory = os.path.join(self._folder, str(self._count))
        os.mkdir(directory)
        return directory

    def _watch(self):
        """The thread: takes in results until there is nothing to wait for and nobody will ask for more."""
        pause = _PAUSES[0]
        while True:
            with self._news:
                while not self._batches:
                    if self._closed:
                        return
                    self._news.wait()
                    pause = _PAUSES[0]
                batches = list(self._batches)
            busy = False
            for batch in batches:
                try:
                    busy |= batch.look()
                except OSError:
                    pass  # no descriptors left, or a file system that does not answer: looked at again
                except Exception as error:
                    batch.fail(error)
            with self._news:
                self._batches = [batch for batch in self._batches if batch.open]
                if self._batches and not busy:
                    self._news.wait(pause)
            pause = _PAUSES[0] if busy else min(pause * 1.5, _PAUSES[1])

    def shutdown(self, wait=True, *, cancel_futures=False):
        """Takes no more calls; waits for those that run, or cancels them."""
        with self._news:
            self._closed = True
            batches = list(self._batches)
            thread = self._thread
            self._news.notify_all()
        if cancel_futures:
            for batch in batches:
                for future in batch.futures:
                    future.cancel()
        if wait and self._process == os.getpid():
            if thread is not None:
                thread.join()
            self._remove()

    def _remove(self):
        _open.discard(self)
        shutil.rmtree(self._folder, ignore_errors=True)


class _Batch:
    """One job and the futures of its calls."""

    def __init__(self, job, directory, count, has_retries):
        self.job = job
        self._has_retries = has_retries
        self._directory = directory
        self.futures = [Future() for _ in range(count)]
        self.open = dict(enumerate(self.futures))
        self._ask_at = time.monotonic() + _STATE_SECONDS
        self._ended = False
        for future in self.futures:
            future.job = job
            future.add_done_callback(self._cancelled)

    def _cancelled(self, future):
        # The job has other calls as long as any future is open.
        if future.cancelled() and all(future.done() for future in self.futures):
            try:
                self.job.cancel()
            except HerdError:
                pass  # it has ended

    def look(self):
        """Takes in what is there; whether that was anything."""
        busy = False
        for index, future in list(self.open.items()):
            if future.cancelled():
                del self.open[index]
                future.set_running_or_notify_cancel()
                continue
            result = read_result(self._directory, index)
            # With retries an error is the last word only when the job has ended.
            if result is not None and (result[0] == "value" or self._ended or not self._has_retries):
                busy = True
                del self.open[index]
                _finish(future, *result)
        if not self.open:
            # A long-lived executor keeps nothing of what is done.
            shutil.rmtree(self._directory, ignore_errors=True)
        elif self._ended:
            self._fail_rest()
        elif time.monotonic() >= self._ask_at:
            self._ask_at = time.monotonic() + _STATE_SECONDS
            self._ended = self._has_ended()
        return busy

    def _has_ended(self):
        try:
            return self.job.done()
        except Exception:
            return False  # not to be asked just now

    def _fail_rest(self):
        """The job has ended, and one more look found no result: it says why."""
        try:
            self.job._result()
            error = JobFailedError(
                f"job {self.job.id} ended without a result (os._exit?)", f"herd logs {self.job.id}", 0, self.job.id
            )
        except Exception as reason:
            error = reason
        self.fail(error)

    def fail(self, error):
        """Ends all open futures with an error."""
        for future in self.open.values():
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
        self.open = {}


def _finish(future, kind, value):
    if not future.set_running_or_notify_cancel():
        return
    if kind == "value":
        future.set_result(value)
    else:
        future.set_exception(value)


#: Executors whose folders are there.
_open = weakref.WeakSet()


@atexit.register
def _remove_what_is_done():
    """Executors that were not shut down leave nothing for which no job runs."""
    for executor in list(_open):
        if executor._process == os.getpid() and not any(batch.open for batch in executor._batches):
            executor._remove()


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


def _make_folder(folder, home):
    import tempfile

    if folder is None:
        home = home or os.environ.get("HERD_HOME")
        if home is None:
            state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
            home = os.path.join(state, "herd")
        folder = os.path.join(home, "python")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    # mkdtemp makes it for this user alone: what is unpickled runs.
    return tempfile.mkdtemp(prefix="executor-", dir=folder)
