"""The futures of calls, and the jobs that they are calls of."""

import os
import shutil
from concurrent.futures import Future, InvalidStateError

from herdsman._calls import claim, read_result
from herdsman.errors import HerdError, JobCancelledError, JobFailedError


class CallFuture(Future):
    """The future of a call. `job` is its job; None while the call waits for a turn (`max_workers`)."""

    job = None

    def cancel(self):
        """As that of the standard library, and a call that runs is ended, too."""
        while True:
            with self._condition:
                if self._state == "RUNNING":
                    self._state = "PENDING"
            if super().cancel():
                return True
            # Begun again between the two steps?
            if not self.running():
                return False

    def begin(self):
        """Notes that the call runs."""
        if not self.running() and not self.done():
            _quietly(self.set_running_or_notify_cancel)

    def end(self, kind, value):
        """Notes what the call has come to; nothing where it was cancelled meanwhile."""
        self.begin()
        _quietly(self.set_result if kind == "value" else self.set_exception, value)
        self.tell_cancelled()

    def tell_cancelled(self):
        """Has those told who wait for a future that is cancelled."""
        if self._state == "CANCELLED":
            _quietly(self.set_running_or_notify_cancel)


def _quietly(change, *arguments):
    """The caller may cancel a future at any moment, which forbids all other changes."""
    try:
        change(*arguments)
    except (InvalidStateError, RuntimeError):
        pass


class Batch:
    """One job and the futures of its calls. Only the executor's thread changes it once the job is there."""

    def __init__(self, directory, calls, is_single, changed):
        self.directory = directory
        self.futures = [CallFuture() for _ in calls]
        self.open = dict(enumerate(self.futures))
        self.job = None
        #: Hands the job over.
        self.hand_over = None
        #: One call of `submit`, of which `max_workers` run at once, or all those of one `map`.
        self.is_single = is_single
        self.has_retries = False
        #: Whether the job was asked to end, and whether it has ended.
        self.is_cancelled = self.has_ended = False
        for future in self.futures:
            future.add_done_callback(changed)

    def is_over(self):
        """Whether there is nothing to wait for: of a job that was asked to end, its end."""
        return not self.open and (self.has_ended or not self.is_cancelled)

    def begun(self, job, has_retries):
        """Notes the job, which may try again what has failed."""
        self.job = job
        self.has_retries = has_retries
        self.hand_over = None
        for future in self.futures:
            future.job = job

    def cancel_what_waits(self):
        """Cancels the calls that have not begun, and only those, whatever happens in the job meanwhile."""
        for index, future in list(self.open.items()):
            if self.job is None or claim(self.directory, index, "cancelled"):
                future.cancel()

    def look(self):
        """Takes in what the calls have left; whether that was anything."""
        if not self.open:
            return False
        names = set(os.listdir(self.directory))
        busy = False
        for index, future in list(self.open.items()):
            if future.cancelled():
                # Its task may be one of many that go on.
                claim(self.directory, index, "cancelled")
                del self.open[index]
                future.tell_cancelled()
                busy = True
                continue
            if f"{index}.result" in names and self._take(index, future):
                busy = True
            elif f"{index}.claim" in names:
                future.begin()
        if self.open and self.has_ended:
            self._fail_rest()
        if not self.open:
            self._let_go()
        return busy

    def _take(self, index, future):
        result = read_result(self.directory, index)
        # With retries an error is the last word only when the job has ended.
        if result is None or (result[0] != "value" and self.has_retries and not self.has_ended):
            return False
        del self.open[index]
        future.end(*result)
        return True

    def _let_go(self):
        """All is known. A job with a cancelled call may still run it; else a long-lived executor keeps nothing."""
        if any(future.cancelled() for future in self.futures) and not self.has_ended:
            self.is_cancelled = True
            try:
                self.job.cancel()
            except HerdError:
                pass  # it has ended, which is seen next
        shutil.rmtree(self.directory, ignore_errors=True)

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
        """Ends all open futures with an error; those of a job that somebody has cancelled are cancelled."""
        for future in self.open.values():
            if isinstance(error, JobCancelledError):
                future.cancel()
                future.tell_cancelled()
            else:
                future.end("error", error)
        self.open = {}
