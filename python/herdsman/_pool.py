"""What an executor does beside its caller: hands calls over as jobs, one thread looks for their results."""

import atexit
import os
import shutil
import threading
import time
import weakref
from collections import deque
from functools import partial

from herdsman import _command
from herdsman._calls import write_calls
from herdsman._folder import Folder
from herdsman._futures import Batch
from herdsman.errors import HerdError

#: Seconds between looks at results: the first, and the longest.
_PAUSES = (0.002, 0.05)
#: Seconds between questions whether jobs have ended without a result, and whether cancelled ones have.
_STATE_SECONDS = (1.0, 0.1)


class Pool:
    """The jobs of an executor. `submit` hands over the job of calls in a directory; of the jobs of one call, `limit` run at
    once."""

    def __init__(self, parent, submit, home, limit):
        self._parent = parent
        self._submit = submit
        self._home = home
        self._limit = float("inf") if limit is None else limit
        # Also taken by what is called when a future changes, in whatever thread that does.
        self._news = threading.Condition(threading.RLock())
        self._folder = None
        self._waiting = deque()
        self._batches = []
        self._closed = False
        self._thread = None
        self._asked_at = time.monotonic()
        self.process = os.getpid()
        _open.add(self)

    def start(self, calls, is_single, **more):
        """Starts the calls as one job, or has them wait for a turn; their futures."""
        if self.process != os.getpid():
            raise RuntimeError(
                "this executor is of the process that this one was forked from, whose thread looks for its results\n"
                "hint: make an executor after the fork"
            )
        with self._news:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if self._folder is None:
                self._folder = Folder(self._parent)
            directory = self._folder.next()
        try:
            batch = Batch(directory, calls, is_single, self._changed)
            batch.hand_over = partial(self._submit, batch, **more)
            write_calls(directory, calls)
            with self._news:
                waits = is_single and (self._waiting or self._running() >= self._limit)
                # Counted from here on.
                (self._waiting if waits else self._batches).append(batch)
            if not waits:
                batch.hand_over()
        except BaseException:
            with self._news:
                self._batches = [other for other in self._batches if other.directory != directory]
            shutil.rmtree(directory, ignore_errors=True)
            raise
        with self._news:
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="herdsman-executor", daemon=True)
                self._thread.start()
            self._news.notify_all()
        return batch.futures

    def _running(self):
        return sum(batch.is_single for batch in self._batches)

    def _changed(self, future):
        if future.cancelled():
            with self._news:
                self._news.notify_all()

    def _watch(self):
        """The thread: takes in results until there is nothing to wait for and nobody will ask for more."""
        pause = _PAUSES[0]
        while True:
            with self._news:
                while not self._batches and not self._waiting:
                    if self._closed:
                        self._remove_folder()
                        return
                    self._news.wait()
                    pause = _PAUSES[0]
                batches = [batch for batch in self._batches if batch.job is not None]
            if batches:
                self._ask(batches)
            busy = False
            for batch in batches:
                try:
                    busy |= batch.look()
                except OSError:
                    pass  # no descriptors left, or a file system that does not answer: looked at again
                except Exception as error:
                    batch.fail(error)
            with self._news:
                self._batches = [batch for batch in self._batches if batch.job is None or not batch.is_over()]
            busy |= self._give_turns()
            with self._news:
                if self._batches and not busy:
                    self._news.wait(pause)
            pause = _PAUSES[0] if busy else min(pause * 1.5, _PAUSES[1])

    def _give_turns(self):
        """Hands over what waited for a turn, as many as there is room for; whether there was any."""
        busy = False
        while True:
            with self._news:
                if not self._waiting:
                    return busy
                cancelled = self._waiting[0].futures[0].cancelled()
                if not cancelled and self._running() >= self._limit:
                    return busy
                batch = self._waiting.popleft()
                if not cancelled:
                    self._batches.append(batch)
            busy = True
            try:
                if cancelled:
                    batch.futures[0].tell_cancelled()
                    shutil.rmtree(batch.directory, ignore_errors=True)
                else:
                    batch.hand_over()
            except Exception as error:
                batch.fail(error)
                shutil.rmtree(batch.directory, ignore_errors=True)
                with self._news:
                    self._batches.remove(batch)

    def _ask(self, batches):
        """Asks now and then which jobs have ended: one question for all, then each that seems to have."""
        now = time.monotonic()
        if now - self._asked_at < _STATE_SECONDS[any(batch.is_cancelled for batch in batches)]:
            return
        self._asked_at = now
        try:
            active = _command.run("ls", "--all", "--state", "active", "-o", "id", home=self._home)
            active = set(active.decode().split())
            for batch in batches:
                if batch.job.id not in active:
                    batch.has_ended = batch.has_ended or batch.job.done()
        except (HerdError, OSError, ValueError):
            pass  # not to be asked just now

    def close(self, wait, cancel_futures=False, cancel_running=False):
        """Takes no more calls; waits for those there are, or cancels what has not begun, or all."""
        with self._news:
            self._closed = True
            batches = [*self._batches, *self._waiting]
            thread = self._thread
            self._news.notify_all()
            if thread is None:
                self._remove_folder()
        if self.process != os.getpid():
            return
        if cancel_running:
            for future in [future for batch in batches for future in batch.futures]:
                future.cancel()
        elif cancel_futures:
            for batch in batches:
                batch.cancel_what_waits()
        # What is called when a future changes may be called by the thread itself.
        if wait and thread is not None and thread is not threading.current_thread():
            thread.join()

    def _remove_folder(self):
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.remove()

    def abandon(self):
        """Nobody will ask for results any more: cancels all jobs, and leaves nothing."""
        with self._news:
            self._closed = True
            self._waiting.clear()
            ids = [batch.job.id for batch in self._batches if batch.job is not None and not batch.is_cancelled]
        for at in range(0, len(ids), 500):
            try:
                _command.run("cancel", *ids[at : at + 500], home=self._home)
            except (HerdError, OSError):
                pass  # they have ended, or cannot be reached
        self._remove_folder()


#: Those whose folder or jobs may be there.
_open = weakref.WeakSet()


@atexit.register
def _abandon_all():
    for pool in list(_open):
        if pool.process == os.getpid():
            pool.abandon()
