from typing import Any, Optional

class HerdError(Exception):
    reason: str
    hint: Optional[str]
    exit_code: Optional[int]
    def __init__(self, reason: str, hint: Optional[str] = None, exit_code: Optional[int] = None) -> None: ...

class InvalidJobError(HerdError): ...
class NoSuchJobError(HerdError): ...

class JobError(HerdError):
    job: Optional[str]
    failure: Optional[dict[str, Any]]
    def __init__(
        self,
        reason: str,
        hint: Optional[str] = None,
        exit_code: Optional[int] = None,
        job: Optional[str] = None,
        failure: Optional[dict[str, Any]] = None,
    ) -> None: ...

class JobFailedError(JobError): ...
class JobCancelledError(JobError): ...
class JobRejectedError(JobError): ...
