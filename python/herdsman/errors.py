"""Errors of jobs. Each has the reason and the hint of the command line."""


class HerdError(Exception):
    """herd could not do what it was asked. `reason` says why, `hint` what to do, `exit_code` is herd's."""

    def __init__(self, reason, hint=None, exit_code=None):
        super().__init__(f"{reason}\nhint: {hint}" if hint else reason)
        self.reason = reason
        self.hint = hint
        self.exit_code = exit_code

    def __reduce__(self):
        return (type(self), (self.reason, self.hint, self.exit_code))


class InvalidJobError(HerdError):
    """The job's description is wrong, or the backend cannot honour it: nothing was started."""


class NoSuchJobError(HerdError):
    """No job has that id or name."""


class JobError(HerdError):
    """A job ended otherwise than well. `job` is its id, `failure` what `herd status -o json` says about it."""

    def __init__(self, reason, hint=None, exit_code=None, job=None, failure=None):
        super().__init__(reason, hint, exit_code)
        self.job = job
        self.failure = failure

    def __reduce__(self):
        return (type(self), (self.reason, self.hint, self.exit_code, self.job, self.failure))


class JobFailedError(JobError):
    """It failed: a rank or its set-up, a lost node, the time limit."""


class JobCancelledError(JobError):
    """It was cancelled."""


class JobRejectedError(JobError):
    """It never started."""
