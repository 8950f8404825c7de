"""Where workers write."""

import os
from abc import ABC, abstractmethod

from herdsman._lazy import LazyLogger
from herdsman.multiprocessing._std import Std, to_map

logger = LazyLogger("herdsman.multiprocessing.api")

#: The agent's own stream.
_INHERIT = ""


class LogsSpecs(ABC):
    """What is to become of the workers' streams: `redirects` go into files, `tee` are shown besides; only the ranks of the
    filter, where there is one, are shown at all."""

    def __init__(self, log_dir=None, redirects=Std.NONE, tee=Std.NONE, local_ranks_filter=None):
        self._root_log_dir = log_dir
        self._redirects = redirects
        self._tee = tee
        self._local_ranks_filter = local_ranks_filter

    @abstractmethod
    def reify(self, envs):
        """The files for workers with these variables, to which it may add."""

    @property
    @abstractmethod
    def root_log_dir(self):
        """The directory that all files are below."""


class DefaultLogsSpecs(LogsSpecs):
    """Files `<log_dir>/<run id>_<random>/attempt_<n>/<local rank>/{stdout.log,stderr.log,error.json}`. Without a `log_dir`
    it makes a directory among the temporary ones; with `/dev/null` there are no files."""

    def __init__(self, log_dir=None, redirects=Std.NONE, tee=Std.NONE, local_ranks_filter=None):
        self._is_implicit = not log_dir
        if not log_dir:
            import tempfile

            log_dir = tempfile.mkdtemp(prefix="torchelastic_")
        elif log_dir != os.devnull:
            if os.path.isfile(log_dir):
                raise NotADirectoryError(f"log_dir: {log_dir} is a file")
            os.makedirs(log_dir, exist_ok=True)
        super().__init__(log_dir, redirects, tee, local_ranks_filter)
        self._run_log_dir = None

    @property
    def root_log_dir(self):
        return str(self._root_log_dir)

    def cleanup(self):
        """Removes the directory with all logs, if it was made here because none was named."""
        if self._is_implicit:
            import shutil

            shutil.rmtree(self._root_log_dir, ignore_errors=True)

    def _make_log_dir(self, log_dir, rdzv_run_id):
        import tempfile

        os.makedirs(log_dir, exist_ok=True)
        made = tempfile.mkdtemp(prefix=f"{rdzv_run_id}_", dir=log_dir)
        logger.info("log directory set to: %s", made)
        return made

    def _attempt_dir(self, envs):
        """The directory of this attempt, made anew; None where there are to be no files."""
        if not envs:
            logger.warning("Empty envs map provided when defining logging destinations.")
        common = envs[0] if envs else {}
        if self._root_log_dir == os.devnull:
            return None
        if not self._run_log_dir:
            self._run_log_dir = self._make_log_dir(
                self._root_log_dir, common.get("TORCHELASTIC_RUN_ID", "test_run_id")
            )
            # Both this process and its workers may go elsewhere.
            self._run_log_dir = os.path.abspath(self._run_log_dir)
        attempt = os.path.join(self._run_log_dir, f"attempt_{common.get('TORCHELASTIC_RESTART_COUNT', '0')}")
        if os.path.isdir(attempt):
            import shutil

            shutil.rmtree(attempt, ignore_errors=True)
        os.makedirs(attempt)
        return attempt

    def reify(self, envs):
        from herdsman.multiprocessing._results import LogsDest

        count = len(envs)
        attempt = self._attempt_dir(envs)
        ranks = range(count)
        dest = LogsDest(
            stdouts=dict.fromkeys(ranks, _INHERIT),
            stderrs=dict.fromkeys(ranks, _INHERIT),
            filtered_stdout=os.path.join(attempt or os.devnull, "filtered_stdout.log"),
            filtered_stderr=os.path.join(attempt or os.devnull, "filtered_stderr.log"),
        )
        redirects, tees = to_map(self._redirects, count), to_map(self._tee, count)
        for rank in ranks:
            if attempt is None:
                for mapping in (dest.tee_stdouts, dest.tee_stderrs, dest.error_files):
                    mapping[rank] = os.devnull
                envs[rank]["TORCHELASTIC_ERROR_FILE"] = ""
                continue
            directory = os.path.join(attempt, str(rank))
            os.mkdir(directory)
            shown = not self._local_ranks_filter or rank in self._local_ranks_filter
            for flag, files, tee_files, name in (
                (Std.OUT, dest.stdouts, dest.tee_stdouts, "stdout.log"),
                (Std.ERR, dest.stderrs, dest.tee_stderrs, "stderr.log"),
            ):
                if (redirects[rank] | tees[rank]) & flag:
                    files[rank] = os.path.join(directory, name)
                elif not shown:
                    files[rank] = os.devnull
                if tees[rank] & flag and shown:
                    tee_files[rank] = files[rank]
            error_file = os.path.join(directory, "error.json")
            dest.error_files[rank] = error_file
            envs[rank]["TORCHELASTIC_ERROR_FILE"] = error_file
        return dest

    def __repr__(self):
        return (
            f"DefaultLogsSpecs(root_log_dir={self._root_log_dir}, redirects={self._redirects}, "
            f"tee={self._tee}, local_ranks_filter={self._local_ranks_filter})"
        )

    __hash__ = None

    def __eq__(self, other):
        if not isinstance(other, DefaultLogsSpecs):
            return False
        names = ("_root_log_dir", "_redirects", "_tee", "_local_ranks_filter")
        return all(getattr(self, name) == getattr(other, name) for name in names)
