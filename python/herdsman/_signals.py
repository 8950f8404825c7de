"""Signals that end what this process does, held back while it takes in what cannot be asked for again."""

import os
import threading

_depth = 0
_held = []
#: What asks for the end: SIGHUP, SIGINT, SIGQUIT, SIGTERM.
ENDING = (1, 2, 3, 15)
#: `before`: this thread's mask before they were blocked.
_mask = threading.local()


class _Undisturbed:
    """A context in which our handlers only note a signal; they are called when it is left."""

    def __enter__(self):
        global _depth
        self._counts = threading.current_thread() is threading.main_thread()
        if self._counts:
            _depth += 1

    def __exit__(self, *_):
        global _depth
        if self._counts:
            _depth -= 1
            if _depth == 0 and _held:
                handler, signum, frame = _held.pop(0)
                _held.clear()
                handler(signum, frame)


def undisturbed():
    """Python runs handlers between any two steps of the main thread: a signal inside of this context is told at its end."""
    return _Undisturbed()


def hold(handler, signum, frame):
    """Whether the signal is held back; the handler is called later then."""
    if _depth:
        _held.append((handler, signum, frame))
    return bool(_depth)


class _Blocked:
    """A context in which a process is forked: signals that reach the child wait until it says `forked`. An exception of ours
    would be lost in what Python does first there."""

    def __enter__(self):
        import signal

        _mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)

    def __exit__(self, *_):
        forked()


def blocked():
    """As `_Blocked` says."""
    return _Blocked()


def forked():
    """From now on signals are heard again as they were before."""
    before = vars(_mask).pop("before", None)
    if before is not None:
        import signal

        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _nothing_is_held():
    global _depth
    _depth = 0
    _held.clear()


# A worker that is forked is forked inside of such a context.
os.register_at_fork(after_in_child=_nothing_is_held)
