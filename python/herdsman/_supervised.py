"""Workers under a supervisor: a process of ours that starts them, or watches those that this process has started.

It ends them, and all below them, when this process dies by whatever signal. Nothing is set in this process: no signal
handler, no thread, no interest in SIGCHLD.
"""

import os
import select
import threading
import time

from herdsman import _binaries, _signals

try:
    from herdsman._native import Supervisor
except ImportError as error:
    raise ImportError(
        f"herdsman's native module cannot be loaded: {error}\n"
        "hint: install the package (pip install herdsman); it runs neither from a zip file nor from a source tree",
        name="herdsman._native",
    ) from error

#: Seconds a supervisor may take to start all workers.
START_BOUND = 60.0
#: Seconds it may take, beyond the grace of its workers, to end what is left of them.
END_BOUND = 15.0


class Exit:
    """How a worker ended: `code` (minus the signal that ended it), `at` (seconds since the Unix epoch), `stopped`
    (whether it had been asked to) and `abandoned` (whether it could not be killed)."""

    __slots__ = ("code", "at", "stopped", "abandoned")

    def __init__(self, code, at, stopped, abandoned):
        self.code = code
        self.at = at
        self.stopped = stopped
        self.abandoned = abandoned


class Supervised:
    """A supervisor with the workers `described`: a list of (argv, variables over this process's own, file of stdout, file
    of stderr). Either all start or none, and then the error is raised that `subprocess.Popen` raises."""

    def __init__(self, described, marker=None):
        environment = list(os.environ.items()) if described else []
        self._lock = threading.RLock()
        self._native = Supervisor(_binaries.herd_node(), environment, described, marker)
        self.pid = self._native.pid
        self._poll = select.poll()
        self._poll.register(self._native.fileno(), select.POLLIN)
        self.closed = False
        self.pids = []
        #: By index, in the order of the ends.
        self.exits = {}
        self._count = len(described)
        self._failed = None
        self._started = False
        try:
            if not self._wait(lambda: self._started or self._failed or self.closed, START_BOUND):
                raise RuntimeError(f"the supervisor of the workers started none of them within {START_BOUND:.0f} s")
            if self._failed:
                self._raise_failure()
            if not self._started:
                raise RuntimeError("the supervisor of the workers ended before it had started them")
        except BaseException:
            if self._native is not None:
                self._native.leave()
            self._let_go()
            raise

    def _raise_failure(self):
        index, errno, subject, message = self._failed
        if errno:
            error = OSError(errno, os.strerror(errno), subject)
        else:
            error = ValueError(message)
        raise error

    def look(self):
        """Takes in what the supervisor has said, without waiting."""
        with self._lock, _signals.undisturbed():
            while not self.closed:
                report = self._native.report()
                if report is None:
                    return
                self._take(report)

    def _take(self, report):
        kind = report[0]
        if kind == "exited":
            self.exits[report[1]] = Exit(*report[2:])
        elif kind == "started":
            self._started = True
            self.pids = report[1]
        elif kind == "failed":
            self._failed = report[1:]
        else:
            self.closed = True
            self._let_go()
            if not self._started or self._failed:
                return
            # It ends after its workers, unless somebody ended it: then they were killed.
            for index in range(self._count):
                self.exits.setdefault(index, Exit(-9, time.time(), True, False))

    def wait_for_change(self, seconds):
        """Waits until there is something to look at, at most so long."""
        if not self.closed:
            self._poll.poll(max(0, seconds * 1000))

    def _let_go(self):
        """Reaps a supervisor that has said its last word, and closes what this process has of it."""
        with self._lock:
            if self._native is not None:
                self._native.reap(END_BOUND)
                self._native = None

    def _wait(self, condition, seconds):
        end = time.monotonic() + seconds
        while True:
            self.look()
            if condition():
                return True
            left = end - time.monotonic()
            if left <= 0:
                return False
            self.wait_for_change(min(left, 10))

    def wait_closed(self, seconds):
        """Waits until nothing is left of the workers, at most so long; whether that is so."""
        return self._wait(lambda: self.closed, seconds)

    def wait_exit(self, index, seconds):
        """Waits for the end of one worker, at most so long (None: for ever); whether it has ended."""
        bound = float("inf") if seconds is None else seconds
        return self._wait(lambda: index in self.exits, bound)

    def running(self):
        """Indices of the workers that still run, as far as is known."""
        return [index for index in range(self._count) if index not in self.exits]

    def stop(self, signal, grace):
        """Asks all workers to end, and has them killed after the grace in seconds; asked again: at once."""
        with self._lock:
            if not self.closed:
                self._native.stop(int(signal), float(grace))

    def signal(self, index, signal, group=False):
        """Sends one worker a signal, or its whole process group."""
        with self._lock:
            if not self.closed:
                self._native.signal(index, int(signal), group)

    def watch(self, pid):
        """Has a worker looked after that this process has started."""
        with self._lock:
            self._native.watch(pid)

    def unwatch(self):
        """Tells that all of those have been seen to; the supervisor ends."""
        with self._lock:
            if not self.closed:
                self._native.unwatch()
