"""One failed worker: what it wrote into its error file, or what can be said without one."""

import os
import time
from dataclasses import dataclass, field
from typing import Any, Union

from herdsman._lazy import LazyLogger

logger = LazyLogger("herdsman.multiprocessing.errors")

NOT_AVAILABLE = "<N/A>"
#: Of an error file, in characters: what is larger is none.
_LARGEST = 16 << 20
_ADVICE = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"


@dataclass
class ProcessFailure:
    """A worker that failed. `message` and `timestamp` are those of its error file; where it left none, the timestamp is now
    and the message says what is known. An error file that cannot be understood raises."""

    local_rank: int
    pid: int
    exitcode: int
    error_file: str
    error_file_data: dict[str, Any] = field(init=False)
    message: Union[str, dict[str, Any]] = field(init=False)
    timestamp: int = field(init=False)

    def __post_init__(self):
        if os.path.isfile(self.error_file):
            self._read()
        else:
            self.error_file = NOT_AVAILABLE
            self.error_file_data = {"message": "<NONE>"}
            self.message = ""
            self.timestamp = int(time.time())
        if not self.message:
            self._make_up_a_message()

    def _read(self):
        import json

        try:
            with open(self.error_file) as file:
                text = file.read(_LARGEST + 1)
            if len(text) > _LARGEST:
                raise ValueError(f"larger than {_LARGEST >> 20} MiB")
            self.error_file_data = json.loads(text)
            message = self.error_file_data["message"]
            if isinstance(message, str):
                timestamp = self.error_file_data.get("timestamp", 0)
            else:
                timestamp = message["extraInfo"]["timestamp"]
            self.message = message
            self.timestamp = int(timestamp)
        except Exception:
            logger.exception("Failed to parse reply file: %s", self.error_file)
            raise

    def _make_up_a_message(self):
        if self.exitcode < 0:
            self.message = f"Signal {-self.exitcode} ({self.signal_name()}) received by PID {self.pid}"
        else:
            self.error_file_data["errorTraits"] = {
                "category": "system_terminated_error",
                "retryability": "False",
            }
            self.message = _ADVICE

    def signal_name(self):
        """The name of the signal that ended it, `<N/A>` where none did or it has no name."""
        import signal

        try:
            return signal.Signals(-self.exitcode).name if self.exitcode < 0 else NOT_AVAILABLE
        except ValueError:
            return NOT_AVAILABLE

    def timestamp_isoformat(self):
        """When it failed, in local time: `YYYY-MM-DD_HH:MM:SS`."""
        try:
            return time.strftime("%Y-%m-%d_%H:%M:%S", time.localtime(self.timestamp))
        except (OverflowError, OSError, ValueError):
            return NOT_AVAILABLE  # an error file may name a time beyond all calendars


def observed(local_rank, pid, exitcode, error_file, at):
    """The failure of a worker whose end was seen at a time (seconds since the Unix epoch). One whose error file cannot be
    understood is reported without it, with a word about that."""
    unusable = None
    try:
        failure = ProcessFailure(local_rank, pid, exitcode, error_file)
    except Exception as error:
        unusable = error
        failure = ProcessFailure(local_rank, pid, exitcode, "")
    if failure.error_file == NOT_AVAILABLE:
        failure.timestamp = int(at)
    if unusable is not None:
        failure.message += f" (its error file {error_file} cannot be understood: {type(unusable).__name__}: {unusable})"
    return failure
