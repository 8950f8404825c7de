import abc
from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import IntFlag
from signal import Signals
from types import FrameType
from typing import Any, Optional, TextIO, Union

from herdsman.multiprocessing.errors import ProcessFailure as ProcessFailure
from herdsman.multiprocessing.errors import record as record
from herdsman.multiprocessing.redirects import redirect_stderr as redirect_stderr
from herdsman.multiprocessing.redirects import redirect_stdout as redirect_stdout
from herdsman.multiprocessing.subprocess_handler import SubprocessHandler as SubprocessHandler
from herdsman.multiprocessing.subprocess_handler import get_subprocess_handler as get_subprocess_handler
from herdsman.multiprocessing.tail_log import TailLog as TailLog
from herdsman.numa import NumaOptions

class SignalException(Exception):
    sigval: Signals
    def __init__(self, msg: str, sigval: Signals) -> None: ...

def _terminate_process_handler(signum: int, frame: Optional[FrameType]) -> None: ...
def _validate_full_rank(d: dict[int, Any], nprocs: int, what: str) -> None: ...
def get_std_cm(std_rd: str, redirect_fn: Callable[[str], Any]) -> AbstractContextManager[Any]: ...
def _wrap(
    local_rank: int,
    fn: Callable[..., Any],
    args: dict[int, tuple[Any, ...]],
    envs: dict[int, dict[str, str]],
    stdout_redirects: dict[int, str],
    stderr_redirects: dict[int, str],
    ret_vals: dict[int, Any],
    queue_finished_reading_event: Any,
    numa_options: Optional[NumaOptions],
) -> None: ...

class Std(IntFlag):
    NONE = 0
    OUT = 1
    ERR = 2
    ALL = 3
    @classmethod
    def from_str(cls, vm: str) -> Union[Std, dict[int, Std]]: ...

def to_map(val_or_map: Union[Std, dict[int, Std]], local_world_size: int) -> dict[int, Std]: ...

class LogsDest:
    stdouts: dict[int, str]
    stderrs: dict[int, str]
    tee_stdouts: dict[int, str]
    tee_stderrs: dict[int, str]
    error_files: dict[int, str]
    filtered_stdout: str
    filtered_stderr: str
    def __init__(
        self,
        stdouts: dict[int, str] = ...,
        stderrs: dict[int, str] = ...,
        tee_stdouts: dict[int, str] = ...,
        tee_stderrs: dict[int, str] = ...,
        error_files: dict[int, str] = ...,
        filtered_stdout: str = ...,
        filtered_stderr: str = ...,
    ) -> None: ...

class LogsSpecs(abc.ABC):
    def __init__(
        self,
        log_dir: Optional[str] = None,
        redirects: Union[Std, dict[int, Std]] = ...,
        tee: Union[Std, dict[int, Std]] = ...,
        local_ranks_filter: Optional[set[int]] = None,
    ) -> None: ...
    @abc.abstractmethod
    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest: ...
    @property
    @abc.abstractmethod
    def root_log_dir(self) -> str: ...

class DefaultLogsSpecs(LogsSpecs):
    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest: ...
    @property
    def root_log_dir(self) -> str: ...
    def cleanup(self) -> None: ...

class RunProcsResult:
    return_values: dict[int, Any]
    failures: dict[int, ProcessFailure]
    stdouts: dict[int, str]
    stderrs: dict[int, str]
    def __init__(
        self,
        return_values: dict[int, Any] = ...,
        failures: dict[int, ProcessFailure] = ...,
        stdouts: dict[int, str] = ...,
        stderrs: dict[int, str] = ...,
    ) -> None: ...
    def is_failed(self) -> bool: ...

class PContext(abc.ABC):
    name: str
    entrypoint: Union[Callable[..., Any], str]
    args: dict[int, tuple[Any, ...]]
    envs: dict[int, dict[str, str]]
    stdouts: dict[int, str]
    stderrs: dict[int, str]
    error_files: dict[int, str]
    nprocs: int
    filtered_stdout: Optional[TextIO]
    filtered_stderr: Optional[TextIO]
    def __init__(
        self,
        name: str,
        entrypoint: Union[Callable[..., Any], str],
        args: dict[int, tuple[Any, ...]],
        envs: dict[int, dict[str, str]],
        logs_specs: LogsSpecs,
        log_line_prefixes: Optional[dict[int, str]] = None,
        duplicate_stdout_filters: Optional[list[str]] = None,
        duplicate_stderr_filters: Optional[list[str]] = None,
    ) -> None: ...
    def start(self) -> None: ...
    def wait(self, timeout: float = -1, period: float = 1) -> Optional[RunProcsResult]: ...
    def pids(self) -> dict[int, int]: ...
    def close(self, death_sig: Optional[Signals] = None, timeout: int = 30) -> None: ...
    def shutdown(self, death_sig: Optional[Signals] = None, timeout: int = 30) -> None: ...

class SubprocessContext(PContext):
    subprocess_handlers: dict[int, SubprocessHandler]
    def __init__(
        self,
        name: str,
        entrypoint: str,
        args: dict[int, tuple[Any, ...]],
        envs: dict[int, dict[str, str]],
        logs_specs: LogsSpecs,
        log_line_prefixes: Optional[dict[int, str]] = None,
        numa_options: Optional[NumaOptions] = None,
        duplicate_stdout_filters: Optional[list[str]] = None,
        duplicate_stderr_filters: Optional[list[str]] = None,
    ) -> None: ...

class MultiprocessContext(PContext):
    start_method: str
    def __init__(
        self,
        name: str,
        entrypoint: Callable[..., Any],
        args: dict[int, tuple[Any, ...]],
        envs: dict[int, dict[str, str]],
        start_method: str,
        logs_specs: LogsSpecs,
        log_line_prefixes: Optional[dict[int, str]] = None,
        numa_options: Optional[NumaOptions] = None,
        duplicate_stdout_filters: Optional[list[str]] = None,
        duplicate_stderr_filters: Optional[list[str]] = None,
    ) -> None: ...
