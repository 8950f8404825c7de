from collections.abc import Callable
from typing import Any, Optional, Union

from herdsman.multiprocessing.api import DefaultLogsSpecs as DefaultLogsSpecs
from herdsman.multiprocessing.api import LogsDest as LogsDest
from herdsman.multiprocessing.api import LogsSpecs as LogsSpecs
from herdsman.multiprocessing.api import MultiprocessContext as MultiprocessContext
from herdsman.multiprocessing.api import PContext as PContext
from herdsman.multiprocessing.api import ProcessFailure as ProcessFailure
from herdsman.multiprocessing.api import RunProcsResult as RunProcsResult
from herdsman.multiprocessing.api import SignalException as SignalException
from herdsman.multiprocessing.api import Std as Std
from herdsman.multiprocessing.api import SubprocessContext as SubprocessContext
from herdsman.multiprocessing.api import to_map as to_map
from herdsman.numa import NumaOptions

__all__ = [
    "start_processes",
    "MultiprocessContext",
    "PContext",
    "ProcessFailure",
    "RunProcsResult",
    "SignalException",
    "Std",
    "LogsDest",
    "LogsSpecs",
    "DefaultLogsSpecs",
    "SubprocessContext",
    "to_map",
]

def start_processes(
    name: str,
    entrypoint: Union[Callable[..., Any], str],
    args: dict[int, tuple[Any, ...]],
    envs: dict[int, dict[str, str]],
    logs_specs: LogsSpecs,
    log_line_prefixes: Optional[dict[int, str]] = None,
    start_method: str = "spawn",
    numa_options: Optional[NumaOptions] = None,
    duplicate_stdout_filters: Optional[list[str]] = None,
    duplicate_stderr_filters: Optional[list[str]] = None,
) -> PContext: ...
