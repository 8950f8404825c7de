"""Workers that are functions, started in the ways of CPython's `multiprocessing`. A supervisor watches them besides, so that
they and all below them end when this process dies."""

import os
import select
import signal
import time
from contextlib import nullcontext

from herdsman import _signals
from herdsman._lazy import LazyLogger
from herdsman._supervised import END_BOUND, Supervised
from herdsman.multiprocessing._context import PContext

logger = LazyLogger("herdsman.multiprocessing.api")

_MARKER = "HERDSMAN_SUPERVISOR"
#: What a worker is said to have ended with when somebody else in this process has taken its exit status.
_UNKNOWN = 1


class _Rank:
    """One worker in the parent."""

    def __init__(self, process, connection, start_method):
        self.process = process
        self.pid = process.pid
        self.connection = connection
        os.set_blocking(connection.fileno(), False)
        self.handle = None
        # A pipe that the child holds stays open in what the child forks, so it says too late that the child has ended. A
        # child of the fork server ends for this process when the server says so.
        if start_method != "forkserver":
            try:
                self.handle = os.pidfd_open(self.pid)
            except (AttributeError, OSError):
                pass  # an older kernel or Python
        self._received = bytearray()
        self.delivered = False
        self._released = False
        self.value = None
        #: Why its value is of no use.
        self.refused = None
        self.told_code = None
        self.traceback = None
        self.code = None

    def _end(self):
        """The descriptor that becomes readable when it has ended."""
        return self.process.sentinel if self.handle is None else self.handle

    def descriptors(self):
        """What becomes readable when there is news; nothing of one that is done."""
        if self.connection is not None:
            yield self.connection.fileno()
        if self.code is None:
            yield self._end()

    def look(self):
        """Takes in what it has sent, and whether it has ended."""
        with _signals.undisturbed():
            self._look()

    def _look(self):
        ended = self.code is None and self._has_ended()
        self._receive()
        if ended:
            exitcode = self.process.exitcode
            if exitcode is None:
                exitcode = self.told_code if self.told_code is not None else 0 if self.delivered else _UNKNOWN
            self.code = exitcode

    def _has_ended(self):
        poll = select.poll()
        poll.register(self._end(), select.POLLIN)
        return bool(poll.poll(0))

    def _receive(self):
        while self.connection is not None:
            try:
                data = os.read(self.connection.fileno(), 1 << 20)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.connection.close()
                self.connection = None
                break
            self._received += data
        while len(self._received) >= 9:
            length = int.from_bytes(self._received[1:9], "big")
            if len(self._received) < 9 + length:
                return
            self._take(bytes(self._received[:1]), bytes(memoryview(self._received)[9 : 9 + length]))
            del self._received[: 9 + length]

    def _take(self, kind, data):
        from herdsman.multiprocessing import _worker

        if kind == _worker.VALUE:
            from multiprocessing.reduction import ForkingPickler

            try:
                self.value = ForkingPickler.loads(data)
                self.delivered = True
            except Exception as error:
                self.refused = f"what the worker returned cannot be unpickled: {type(error).__name__}: {error}"
                self.release()
        elif kind == _worker.CODE:
            self.told_code = int(data)
        else:
            self.traceback = data.decode("utf-8", "replace")

    def release(self):
        from herdsman.multiprocessing import _worker

        if self.connection is not None and not self._released:
            self._released = True
            try:
                os.write(self.connection.fileno(), _worker.RELEASE)
            except OSError:
                pass  # it has ended already

    def kill(self, number):
        """Signals the process alone."""
        self.look()
        if self.code is None:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def close(self):
        with _signals.undisturbed():
            self._close()

    def _close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        if self.code is None or self.process is None:
            return  # it cannot be killed, or was closed before
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None
        if self.process.exitcode is not None:
            self.process.close()
        self.process = None


class MultiprocessContext(PContext):
    """Workers that are functions, in the session of this process."""

    def __init__(
        self,
        name,
        entrypoint,
        args,
        envs,
        start_method,
        logs_specs,
        log_line_prefixes=None,
        numa_options=None,
        duplicate_stdout_filters=None,
        duplicate_stderr_filters=None,
    ):
        super().__init__(
            name,
            entrypoint,
            args,
            envs,
            logs_specs,
            log_line_prefixes,
            duplicate_stdout_filters,
            duplicate_stderr_filters,
        )
        import multiprocessing

        self.start_method = start_method
        self._multiprocessing = multiprocessing.get_context(start_method)
        self._numa_options = numa_options
        self._ranks = None
        self._supervised = None
        self._result = None

    def _start(self):
        if self._ranks is not None:
            raise ValueError(
                "The process context already initialized. Most likely the start method got called twice."
            )
        self._ranks = []
        if not self.nprocs:
            return
        marker = f"{_MARKER}={os.getpid()}-{os.urandom(8).hex()}"
        self._supervised = Supervised([], marker)
        _close_before_joining()
        for rank in range(self.nprocs):
            self._start_one(rank, marker)

    def _start_one(self, rank, marker):
        from multiprocessing import Pipe

        from herdsman.multiprocessing import _worker

        mine, theirs = Pipe(duplex=True)
        arguments = (
            rank,
            theirs,
            marker,
            self.entrypoint,
            self.args[rank],
            self.envs[rank],
            self.stdouts[rank],
            self.stderrs[rank],
            self._numa_options,
        )
        process = self._multiprocessing.Process(target=_worker.main, args=arguments, daemon=False)
        # One that has started is known, or it would never be ended.
        with _signals.undisturbed():
            try:
                with _signals.blocked() if self.start_method == "fork" else nullcontext():
                    process.start()
            except BaseException:
                mine.close()
                raise
            finally:
                theirs.close()
            self._ranks.append(_Rank(process, mine, self.start_method))
            self._supervised.watch(process.pid)

    def _poll(self):
        if self._result is not None:
            return self._result
        if self._ranks is None:
            raise AssertionError("not started")
        from herdsman.multiprocessing._results import RunProcsResult

        for worker in self._ranks:
            worker.look()
        failed = self._failed()
        if failed is not None:
            self.close()
            self._result = RunProcsResult(
                failures={failed.local_rank: failed}, stdouts=self.stdouts, stderrs=self.stderrs
            )
        elif all(worker.delivered for worker in self._ranks):
            with _signals.undisturbed():
                for worker in self._ranks:
                    worker.release()
            if any(worker.code is None for worker in self._ranks):
                return None
            self.close()
            self._result = RunProcsResult(
                return_values={rank: worker.value for rank, worker in enumerate(self._ranks)},
                stdouts=self.stdouts,
                stderrs=self.stderrs,
            )
        return self._result

    def _failed(self):
        """The failure of the worker that failed first, if any has."""
        from herdsman.multiprocessing.errors._failure import observed

        now = time.time()
        failures = [
            observed(rank, worker.pid, worker.code, self.error_files[rank], now)
            for rank, worker in enumerate(self._ranks)
            if worker.code is not None and (worker.code != 0 or not worker.delivered)
        ]
        if not failures:
            return None
        failure = min(failures, key=lambda failure: failure.timestamp)
        worker = self._ranks[failure.local_rank]
        if worker.refused:
            failure.message = worker.refused
        elif worker.code == 0:
            failure.message = "the worker ended with code 0 but delivered no result (os._exit?)"
        logger.error(
            "failed (exitcode: %s) local_rank: %s (pid: %s) of fn: %s (start_method: %s)%s",
            worker.code,
            failure.local_rank,
            failure.pid,
            getattr(self.entrypoint, "__qualname__", self.entrypoint),
            self.start_method,
            f"\n{worker.traceback}" if worker.traceback else "",
        )
        return failure

    def _wait_for_change(self, seconds, period):
        poll = select.poll()
        for worker in self._ranks or ():
            for descriptor in worker.descriptors():
                poll.register(descriptor, select.POLLIN)
        poll.poll(max(0, seconds * 1000))

    def pids(self):
        if self._ranks is None:
            raise AssertionError("not started")
        return {rank: worker.pid for rank, worker in enumerate(self._ranks)}

    def _running(self):
        for worker in self._ranks:
            worker.look()
        return [worker for worker in self._ranks if worker.code is None]

    def _wait_for_ends(self, seconds):
        """Whether none runs within the time."""
        end = time.monotonic() + seconds
        while self._running():
            left = end - time.monotonic()
            if left <= 0:
                return False
            # A worker that writes much into its socket has more news than its end.
            self._wait_for_change(left, left)
        return True

    def _close(self, death_sig, timeout=30):
        if not self._ranks or self._supervised is None:
            self._end_supervisor()
            return
        for worker in self._running():
            logger.warning(
                "Closing process %s via signal %s", worker.pid, signal.Signals(death_sig).name
            )
            worker.kill(death_sig)
        if not self._wait_for_ends(timeout):
            for worker in self._running():
                logger.warning("Unable to shutdown process %s via %s, killing it", worker.pid, death_sig)
                worker.kill(signal.SIGKILL)
            # What SIGKILL takes is the kernel's time, not the caller's.
            if not self._wait_for_ends(END_BOUND):
                left = [worker.pid for worker in self._running()]
                logger.error("workers cannot be killed and are left: %s", left)
        for worker in self._ranks:
            worker.close()
        self._end_supervisor()

    def _end_supervisor(self):
        if self._supervised is not None:
            self._supervised.unwatch()
            self._supervised.wait_closed(END_BOUND)
            self._supervised = None


_registered_by = None


def _close_before_joining():
    """multiprocessing waits for the functions of a process that ends, in those that it has started itself, too; `atexit` has
    no say there."""
    global _registered_by
    if _registered_by != os.getpid():
        _registered_by = os.getpid()
        from multiprocessing.util import Finalize

        from herdsman.multiprocessing import _context

        Finalize(None, _context._close_all, args=(os.getpid(),), exitpriority=100)
