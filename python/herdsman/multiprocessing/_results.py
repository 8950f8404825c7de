"""Where workers write and how they ended. Apart, because `dataclasses` costs as much as the rest of the package: whoever asks
for these classes, or starts workers, imports it."""

from dataclasses import dataclass, field
from typing import Any

from herdsman.multiprocessing.errors._failure import ProcessFailure


@dataclass
class LogsDest:
    """The files of all local ranks: what they write into (empty: the agent's own stream), what is shown of it, what they
    leave when they fail, and where filtered lines go."""

    stdouts: dict[int, str] = field(default_factory=dict)
    stderrs: dict[int, str] = field(default_factory=dict)
    tee_stdouts: dict[int, str] = field(default_factory=dict)
    tee_stderrs: dict[int, str] = field(default_factory=dict)
    error_files: dict[int, str] = field(default_factory=dict)
    filtered_stdout: str = field(default_factory=str)
    filtered_stderr: str = field(default_factory=str)


@dataclass
class RunProcsResult:
    """How workers ended, by local rank: what functions returned, which failed, and where their output is."""

    return_values: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, ProcessFailure] = field(default_factory=dict)
    stdouts: dict[int, str] = field(default_factory=dict)
    stderrs: dict[int, str] = field(default_factory=dict)

    def is_failed(self):
        """Whether any worker failed."""
        return len(self.failures) > 0
