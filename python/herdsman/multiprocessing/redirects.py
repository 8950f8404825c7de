"""Redirecting a standard stream of this process to a file, at its descriptor: what Python prints, what C prints and what
child processes print."""

import os
import sys
from contextlib import contextmanager
from functools import partial

from herdsman._lazy import lazy_names

__getattr__ = lazy_names(__name__)
_VALID_STD = {"stdout", "stderr"}


def _flush(std):
    stream = getattr(sys, std)
    if stream is not None:
        stream.flush()
    libc = get_libc()
    if libc is not None:
        # All open streams of C: cheaper to say than which.
        libc.fflush(None)


def get_libc():
    """The C library of this process, whose buffers are flushed before a descriptor changes its meaning."""
    import ctypes

    return ctypes.CDLL(None)


@contextmanager
def redirect(std, to_file):
    """Sends `std` ("stdout" or "stderr") to the file while the context lasts. The file is emptied; its directory must
    exist."""
    if std not in _VALID_STD:
        raise ValueError(f"unknown standard stream <{std}>, must be one of {_VALID_STD}")
    stream = getattr(sys, std)
    try:
        descriptor = stream.fileno()
    except (AttributeError, OSError, ValueError):
        # Python's own stream was replaced or closed: C and children still write here.
        descriptor = 1 if std == "stdout" else 2
    with open(to_file, mode="w+b") as file:
        saved = os.dup(descriptor)
        try:
            _flush(std)
            os.dup2(file.fileno(), descriptor)
            try:
                yield
            finally:
                _flush(std)
                os.dup2(saved, descriptor)
        finally:
            os.close(saved)


redirect_stdout = partial(redirect, "stdout")
redirect_stderr = partial(redirect, "stderr")
