"""One worker that is a program."""

from herdsman.multiprocessing.subprocess_handler.handlers import get_subprocess_handler
from herdsman.multiprocessing.subprocess_handler.subprocess_handler import SubprocessHandler

__all__ = ["SubprocessHandler", "get_subprocess_handler"]
