"""The error handler that `record` uses unless it is given one."""

from herdsman.multiprocessing.errors.error_handler import ErrorHandler

__all__ = ["get_error_handler"]


def get_error_handler():
    """A new error handler."""
    return ErrorHandler()
