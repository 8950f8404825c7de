"""One worker that is a program, and its process with the methods of `subprocess.Popen` that callers use."""

import os

from herdsman import numa
from herdsman._supervised import Supervised

__all__ = ["SubprocessHandler"]

_TERM = 15


def describe(entrypoint, args, env, stdout, stderr, local_rank_id, numa_options):
    """A worker as a supervisor is told of it. Raises what `subprocess.Popen` does for what cannot be passed."""
    argv = (entrypoint, *[str(arg) for arg in args])
    argv = numa._maybe_wrap_command_args_with_numa_binding(
        argv, device_index=local_rank_id, numa_options=numa_options
    )
    variables = [(os.fsdecode(os.fsencode(key)), os.fsdecode(os.fsencode(value))) for key, value in env.items()]
    for text in (*argv, *(text for pair in variables for text in pair)):
        if "\0" in text:
            raise ValueError("embedded null byte")
    if any("=" in key for key, _ in variables):
        raise ValueError("illegal environment variable name")
    return list(argv), variables, stdout or "", stderr or ""


class WorkerProcess:
    """The process of a worker: what `subprocess.Popen` offers of one, without its streams."""

    stdin = stdout = stderr = None

    def __init__(self, supervised, index, args):
        self._supervised = supervised
        self._index = index
        # As Popen has what it was given.
        self.args = tuple(args)
        self.pid = supervised.pids[index]

    @property
    def returncode(self):
        """Its exit code, minus the signal that ended it; None until it was asked for after the end."""
        exit = self._supervised.exits.get(self._index)
        return None if exit is None else exit.code

    def poll(self):
        """Its exit code, None while it runs."""
        self._supervised.look()
        return self.returncode

    def wait(self, timeout=None):
        """Waits for its end and returns its exit code."""
        if not self._supervised.wait_exit(self._index, timeout):
            import subprocess

            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def send_signal(self, sig):
        """Sends it a signal; nothing when it has ended."""
        self._supervised.signal(self._index, sig)

    def terminate(self):
        """Sends it SIGTERM."""
        self.send_signal(15)

    def kill(self):
        """Sends it SIGKILL."""
        self.send_signal(9)

    def __repr__(self):
        return f"<{type(self).__name__}: returncode: {self.returncode} args: {self.args!r}>"


class SubprocessHandler:
    """Starts a program as a worker, in a session of its own. `proc` is its process."""

    def __init__(self, entrypoint, args, env, stdout, stderr, local_rank_id, numa_options):
        described = describe(entrypoint, args, env, stdout, stderr, local_rank_id, numa_options)
        self._adopt(Supervised([described]), 0, described[0], local_rank_id)

    def _adopt(self, supervised, index, argv, local_rank_id):
        self._supervised = supervised
        self._index = index
        self.local_rank_id = local_rank_id
        self.proc = WorkerProcess(supervised, index, argv)

    @classmethod
    def of(cls, supervised, index, argv, local_rank_id):
        """The handler of a worker that was started together with others."""
        handler = cls.__new__(cls)
        handler._adopt(supervised, index, argv, local_rank_id)
        return handler

    def close(self, death_sig=None):
        """Sends its process group a signal, SIGTERM unless another is named."""
        self._supervised.signal(self._index, death_sig or _TERM, group=True)
