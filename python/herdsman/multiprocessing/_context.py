"""Workers that were started together: waiting for them, ending them, showing what they write."""

import abc
import os
import signal
import sys
import threading
import time

from herdsman import _signals
from herdsman._lazy import LazyLogger
from herdsman.multiprocessing.tail_log import TailLog

logger = LazyLogger("herdsman.multiprocessing.api")

_DEFAULT_SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
#: What runs: nobody else may hold it, and it must not be ended by the garbage collector.
_running = set()


class SignalException(Exception):
    """This process got a signal that asks for the end; `sigval` says which."""

    def __init__(self, msg, sigval):
        super().__init__(msg)
        self.sigval = sigval


def _terminate_process_handler(signum, frame):
    """The signal handler that `PContext.start` installs in the main thread."""
    if _signals.hold(_terminate_process_handler, signum, frame):
        return
    sigval = signal.Signals(signum)
    # Only the number reads the same in every Python: an IntEnum's text has changed.
    raise SignalException(f"Process {os.getpid()} got signal: {int(sigval)}", sigval=sigval)


def _validate_full_rank(d, nprocs, what):
    """Every rank from 0 to `nprocs - 1` must be a key, and nothing else."""
    actual_keys, expected_keys = set(d.keys()), set(range(nprocs))
    if actual_keys != expected_keys:
        raise RuntimeError(
            f"{what}, local rank mapping mismatch, expected: {expected_keys}, actual: {actual_keys}"
        )


class PContext(abc.ABC):
    """Workers that were, or are to be, started together."""

    def __init__(
        self,
        name,
        entrypoint,
        args,
        envs,
        logs_specs,
        log_line_prefixes=None,
        duplicate_stdout_filters=None,
        duplicate_stderr_filters=None,
    ):
        self.name = name
        nprocs = len(args)
        dest = logs_specs.reify(envs)
        _validate_full_rank(dest.stdouts, nprocs, "stdouts")
        _validate_full_rank(dest.stderrs, nprocs, "stderrs")
        self.entrypoint = entrypoint
        self.args = args
        self.envs = envs
        self.stdouts = dest.stdouts
        self.stderrs = dest.stderrs
        self.error_files = dest.error_files
        self.nprocs = nprocs
        self.filtered_stdout = self.filtered_stderr = None
        self._tail_logs = [
            TailLog(name, dest.tee_stdouts, sys.stdout, log_line_prefixes),
            TailLog(name, dest.tee_stderrs, sys.stderr, log_line_prefixes),
        ]
        if duplicate_stdout_filters:
            self.filtered_stdout = self._add_filter(
                dest.filtered_stdout, dest.tee_stdouts, log_line_prefixes, duplicate_stdout_filters
            )
        if duplicate_stderr_filters:
            self.filtered_stderr = self._add_filter(
                dest.filtered_stderr, dest.tee_stderrs, log_line_prefixes, duplicate_stderr_filters
            )

    def _add_filter(self, path, files, prefixes, needles):
        """A file with those lines of `files` that have any of the needles."""
        file = open(path, mode="w", errors="replace", buffering=1)

        def wanted(line):
            return any(needle in line for needle in needles)

        self._tail_logs.append(TailLog(self.name, files, file, prefixes, log_line_filter=wanted))
        return file

    def start(self):
        """Starts the workers. In the main thread, the signals that `TORCHELASTIC_SIGNALS_TO_HANDLE` names raise
        SignalException from now on."""
        if threading.current_thread() is threading.main_thread():
            _install_handlers(os.environ.get("TORCHELASTIC_SIGNALS_TO_HANDLE", _DEFAULT_SIGNALS))
        else:
            logger.warning(
                "Failed to register signal handlers since torchelastic is running on a child thread. "
                "This could lead to orphaned worker processes if the torchrun is terminated."
            )
        for stream in (sys.stdout, sys.stderr):
            _flush(stream)
        _close_at_exit()
        self._owner = os.getpid()
        _running.add(self)
        self._start()
        for tail_log in self._tail_logs:
            tail_log.start()

    @abc.abstractmethod
    def _start(self):
        """Starts the workers, once."""
        raise NotImplementedError

    @abc.abstractmethod
    def _poll(self):
        """The result, once any worker has failed or all have ended; else None."""
        raise NotImplementedError

    def _wait_for_change(self, seconds, period):
        """Waits until `_poll` may have something new to say, at most so long."""
        time.sleep(min(seconds, period))

    def wait(self, timeout=-1, period=1):
        """Waits for the result, at most `timeout` seconds: None where there is none by then. A negative time-out is for ever,
        0 looks once. It returns when there is something to return: `period` is only for contexts of other kinds."""
        end = float("inf") if timeout < 0 else time.monotonic() + timeout
        while True:
            result = self._poll()
            if result is not None or timeout == 0:
                return result
            left = end - time.monotonic()
            if left <= 0:
                return None
            self._wait_for_change(min(left, 3600), period)

    @abc.abstractmethod
    def pids(self):
        """Process of each local rank."""
        raise NotImplementedError

    @abc.abstractmethod
    def _close(self, death_sig, timeout=30):
        """Ends all workers that still run."""
        raise NotImplementedError

    def close(self, death_sig=None, timeout=30):
        """Ends all workers that still run: asks them with the signal (SIGTERM), kills them after so many seconds. Then all
        that they wrote is shown. Called again while it runs, it kills at once."""
        self._close(death_sig=death_sig or signal.SIGTERM, timeout=timeout)
        for tail_log in self._tail_logs:
            tail_log.stop()
        for file in (self.filtered_stdout, self.filtered_stderr):
            if file:
                file.close()
        _running.discard(self)

    #: What examples of torch call it.
    shutdown = close


_registered = False


def _close_at_exit():
    """Functions wait for their values to be read, and what programs have written is shown by threads that use the streams
    of this process: all ends before it does."""
    global _registered
    if not _registered:
        _registered = True
        import atexit

        atexit.register(_close_all, os.getpid())


def _close_all(owner):
    if os.getpid() == owner:
        for context in list(_running):
            # Functions that are forked have copies of all contexts that run then.
            if context._owner == owner:
                context.close(timeout=1)


def _flush(stream):
    try:
        stream.flush()
    except (AttributeError, OSError, ValueError):
        pass  # closed or none: there is nothing to flush


def _install_handlers(names):
    for name in names.split(","):
        try:
            number = getattr(signal, name.strip())
            # What nohup has had ignored stays ignored.
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue
            signal.signal(number, _terminate_process_handler)
        except (AttributeError, OSError, TypeError, ValueError, RuntimeError):
            logger.warning("Failed to register signal handler for %s", name, exc_info=True)
