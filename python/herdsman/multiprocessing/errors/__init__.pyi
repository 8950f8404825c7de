from collections.abc import Callable
from typing import Any, Optional, TypeVar, Union

from herdsman.multiprocessing.errors.error_handler import ErrorHandler as ErrorHandler
from herdsman.multiprocessing.errors.handlers import get_error_handler as get_error_handler

_F = TypeVar("_F", bound=Callable[..., Any])

class ProcessFailure:
    local_rank: int
    pid: int
    exitcode: int
    error_file: str
    error_file_data: dict[str, Any]
    message: Union[str, dict[str, Any]]
    timestamp: int
    def __init__(self, local_rank: int, pid: int, exitcode: int, error_file: str) -> None: ...
    def signal_name(self) -> str: ...
    def timestamp_isoformat(self) -> str: ...

class ChildFailedError(Exception):
    name: str
    failures: dict[int, ProcessFailure]
    def __init__(self, name: str, failures: dict[int, ProcessFailure]) -> None: ...
    def get_first_failure(self) -> tuple[int, ProcessFailure]: ...
    def format_msg(self, boarder_delim: str = "=", section_delim: str = "-") -> str: ...

def record(fn: _F, error_handler: Optional[ErrorHandler] = None) -> _F: ...
