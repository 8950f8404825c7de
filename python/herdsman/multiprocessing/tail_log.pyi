from collections.abc import Callable
from threading import Event
from typing import Optional, TextIO

def tail_logfile(
    header: str,
    file: str,
    dst: TextIO,
    finished: Event,
    interval_sec: float,
    log_line_filter: Optional[Callable[[str], bool]] = None,
) -> None: ...

class TailLog:
    def __init__(
        self,
        name: str,
        log_files: dict[int, str],
        dst: TextIO,
        log_line_prefixes: Optional[dict[int, str]] = None,
        interval_sec: float = 0.1,
        log_line_filter: Callable[[str], bool] = ...,
    ) -> None: ...
    def start(self) -> TailLog: ...
    def stop(self) -> None: ...
    def stopped(self) -> bool: ...
