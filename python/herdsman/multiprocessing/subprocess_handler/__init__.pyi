from signal import Signals
from typing import Any, Optional

from herdsman.numa import NumaOptions

class WorkerProcess:
    pid: int
    args: list[str]
    @property
    def returncode(self) -> Optional[int]: ...
    def poll(self) -> Optional[int]: ...
    def wait(self, timeout: Optional[float] = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...

class SubprocessHandler:
    proc: WorkerProcess
    local_rank_id: int
    def __init__(
        self,
        entrypoint: str,
        args: tuple[Any, ...],
        env: dict[str, str],
        stdout: Optional[str],
        stderr: Optional[str],
        local_rank_id: int,
        numa_options: Optional[NumaOptions],
    ) -> None: ...
    def close(self, death_sig: Optional[Signals] = None) -> None: ...

def get_subprocess_handler(
    entrypoint: str,
    args: tuple[Any, ...],
    env: dict[str, str],
    stdout: str,
    stderr: str,
    local_rank_id: int,
    numa_options: Optional[NumaOptions] = None,
) -> SubprocessHandler: ...
