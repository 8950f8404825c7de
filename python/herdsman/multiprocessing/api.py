"""Everything of `herdsman.multiprocessing`, by the names that `torch.distributed.elastic.multiprocessing.api` has."""

from herdsman._lazy import lazy_names
from herdsman.multiprocessing._binary import SubprocessContext
from herdsman.multiprocessing._context import (
    PContext,
    SignalException,
    _terminate_process_handler,
    _validate_full_rank,
)
from herdsman.multiprocessing._function import MultiprocessContext
from herdsman.multiprocessing._logs import DefaultLogsSpecs, LogsSpecs
from herdsman.multiprocessing._std import Std, to_map
from herdsman.multiprocessing._worker import _wrap, get_std_cm
from herdsman.multiprocessing.errors import record
from herdsman.multiprocessing.redirects import redirect_stderr, redirect_stdout
from herdsman.multiprocessing.subprocess_handler import SubprocessHandler, get_subprocess_handler
from herdsman.multiprocessing.tail_log import TailLog

__all__ = [
    "DefaultLogsSpecs",
    "SignalException",
    "Std",
    "to_map",
    "RunProcsResult",
    "PContext",
    "get_std_cm",
    "MultiprocessContext",
    "SubprocessContext",
    "LogsDest",
    "LogsSpecs",
]

__getattr__ = lazy_names(
    __name__,
    {
        "LogsDest": "herdsman.multiprocessing._results",
        "RunProcsResult": "herdsman.multiprocessing._results",
        "ProcessFailure": "herdsman.multiprocessing.errors._failure",
    },
)


def __dir__():
    return sorted({*globals(), *__all__})


IS_WINDOWS = False
IS_MACOS = False


def _get_kill_signal():
    import signal

    return signal.SIGKILL


def _get_default_signal():
    import signal

    return signal.SIGTERM
