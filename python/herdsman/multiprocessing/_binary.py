"""Workers that are programs."""

import signal

from herdsman._lazy import LazyLogger
from herdsman._supervised import END_BOUND, Supervised
from herdsman.multiprocessing._context import PContext
from herdsman.multiprocessing.subprocess_handler.subprocess_handler import SubprocessHandler, describe

logger = LazyLogger("herdsman.multiprocessing.api")


class SubprocessContext(PContext):
    """Workers that are programs, each in a session of its own."""

    def __init__(
        self,
        name,
        entrypoint,
        args,
        envs,
        logs_specs,
        log_line_prefixes=None,
        numa_options=None,
        duplicate_stdout_filters=None,
        duplicate_stderr_filters=None,
    ):
        super().__init__(
            name,
            entrypoint,
            args,
            envs,
            logs_specs,
            log_line_prefixes,
            duplicate_stdout_filters,
            duplicate_stderr_filters,
        )
        self.subprocess_handlers = {}
        self._numa_options = numa_options
        self._supervised = None
        self._result = None

    def _start(self):
        if self.subprocess_handlers:
            raise ValueError(
                "The subprocess handlers already initialized. Most likely the start method got called twice."
            )
        if not self.nprocs:
            return
        described = [
            describe(
                self.entrypoint,
                self.args[rank],
                self.envs[rank],
                self.stdouts[rank],
                self.stderrs[rank],
                rank,
                self._numa_options,
            )
            for rank in range(self.nprocs)
        ]
        self._supervised = Supervised(described)
        self.subprocess_handlers = {
            rank: SubprocessHandler.of(self._supervised, rank, argv, rank)
            for rank, (argv, *_) in enumerate(described)
        }

    def _poll(self):
        if self._result is not None:
            return self._result
        if self._supervised is not None:
            self._supervised.look()
            failed = any(exit.code != 0 for exit in self._supervised.exits.values())
            if self._supervised.running() and not failed:
                return None
        self.close()
        self._result = self._make_result()
        return self._result

    def _make_result(self):
        from herdsman.multiprocessing._results import RunProcsResult

        result = RunProcsResult(
            failures=self._failures(), stdouts=self.stdouts, stderrs=self.stderrs
        )
        if not result.is_failed():
            result.return_values = dict.fromkeys(range(self.nprocs))
            return result
        first = min(result.failures.values(), key=lambda failure: failure.timestamp)
        logger.error(
            "failed (exitcode: %s) local_rank: %s (pid: %s) of binary: %s",
            first.exitcode,
            first.local_rank,
            first.pid,
            self.entrypoint,
        )
        return result

    def _failures(self):
        """The failed workers, those that nobody had asked to end first, then in the order of their ends: of two with the
        same second, the first counts as the cause."""
        if self._supervised is None:
            return {}
        from herdsman.multiprocessing.errors._failure import observed

        exits = [(rank, exit) for rank, exit in self._supervised.exits.items() if exit.code != 0]
        exits.sort(key=lambda item: (item[1].stopped, item[1].at))
        return {
            rank: observed(rank, self._supervised.pids[rank], exit.code, self.error_files[rank], exit.at)
            for rank, exit in exits
        }

    def _wait_for_change(self, seconds, period):
        if self._supervised is not None:
            self._supervised.wait_for_change(seconds)

    def pids(self):
        return {rank: handler.proc.pid for rank, handler in self.subprocess_handlers.items()}

    def _close(self, death_sig, timeout=30):
        if self._supervised is None or self._supervised.closed:
            return
        self._supervised.look()
        for rank in self._supervised.running():
            logger.warning(
                "Sending process %s closing signal %s", self._supervised.pids[rank], signal.Signals(death_sig).name
            )
        self._supervised.stop(death_sig, timeout)
        if not self._supervised.wait_closed(timeout + END_BOUND):
            logger.error("workers cannot be killed and are left: %s", self._supervised.running())
