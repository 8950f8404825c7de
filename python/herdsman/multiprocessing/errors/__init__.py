"""What failed workers say, and how it gets to whoever started them: a worker whose main function is under `record` writes
an exception into the file that `TORCHELASTIC_ERROR_FILE` names; the agent reads the files of all."""

from herdsman._lazy import LazyLogger, lazy_names
from herdsman.multiprocessing.errors.error_handler import ErrorHandler
from herdsman.multiprocessing.errors.handlers import get_error_handler

__all__ = ["ProcessFailure", "ChildFailedError", "record", "ErrorHandler", "get_error_handler"]

_log = LazyLogger(__name__)
__getattr__ = lazy_names(__name__, {"ProcessFailure": "herdsman.multiprocessing.errors._failure"})


def __dir__():
    return sorted({*globals(), *__all__})



class ChildFailedError(Exception):
    """Workers of `name` failed; `failures` has them by global rank. Under `record`, the error file of the first one becomes
    that of the process that raises this."""

    def __init__(self, name, failures):
        self.name = name
        self.failures = failures
        if not failures:
            raise AssertionError("no failures")
        super().__init__(self.format_msg())

    def __reduce__(self):
        return (type(self), (self.name, self.failures))

    def get_first_failure(self):
        """The global rank that failed first, and how."""
        rank = min(self.failures, key=lambda rank: self.failures[rank].timestamp)
        return rank, self.failures[rank]

    def format_msg(self, boarder_delim="=", section_delim="-"):
        """The report that is the text of this error."""
        from herdsman.multiprocessing.errors._report import report

        rank, _ = self.get_first_failure()
        return report(self.name, self.failures, rank, get_error_handler(), boarder_delim, section_delim)

    def _format_failure(self, idx, rank, failure):
        from herdsman.multiprocessing.errors._report import block

        text = block(idx, rank, failure, get_error_handler())
        return text, max(map(len, text.split("\n")))


def record(fn, error_handler=None):
    """Decorates the main function of a worker: an exception that leaves it is written into the error file, and leaves it
    all the same. `sys.exit(0)` and `sys.exit()` make it return None."""
    if not error_handler:
        error_handler = get_error_handler()
    from functools import wraps

    @wraps(fn)
    def wrapper(*args, **kwargs):
        error_handler.set_entrypoint_fn_name(getattr(fn, "__qualname__", None))
        error_handler.initialize()
        try:
            result = fn(*args, **kwargs)
        except SystemExit as error:
            if error.code is None or error.code == 0:
                return None
            raise
        except ChildFailedError as error:
            from herdsman.multiprocessing.errors._failure import NOT_AVAILABLE

            rank, failure = error.get_first_failure()
            if failure.error_file != NOT_AVAILABLE:
                _dump(error_handler, failure)
            else:
                _log.info("rank %s failed and left no error file; put its main function under record", rank)
            raise
        except Exception as error:
            error_handler.record_exception(error)
            raise
        # Outside of the try: a handler that fails here is no failure of the function.
        error_handler.record_success()
        return result

    return wrapper


def _dump(error_handler, failure):
    """A file that cannot be read must not hide what happened."""
    try:
        error_handler.dump_error_file(failure.error_file, failure.exitcode)
    except (OSError, ValueError):
        _log.exception("cannot copy the error file %s", failure.error_file)
