"""Writes why a worker failed into the file that `TORCHELASTIC_ERROR_FILE` names."""

import os

from herdsman._lazy import LazyLogger, lazy_names

__all__ = ["ErrorHandler"]

_log = LazyLogger(__name__)
__getattr__ = lazy_names(__name__)


class ErrorHandler:
    """What `record` tells of a function's fate. Subclasses may override any of it."""

    #: Qualified name of the function, for subclasses.
    _fn_name = None

    def _get_error_file_path(self):
        return os.environ.get("TORCHELASTIC_ERROR_FILE", None)

    def set_entrypoint_fn_name(self, fn_name):
        """Notes the qualified name of the function, before `initialize`."""
        self._fn_name = fn_name

    def initialize(self):
        """Before the function runs: has the stacks of all threads shown when the process crashes."""
        import faulthandler

        try:
            faulthandler.enable(all_threads=True)
        except Exception as error:
            import warnings

            warnings.warn(f"Unable to enable fault handler. {type(error).__name__}: {error}", stacklevel=2)

    def _write_error_file(self, file_path, error_msg):
        try:
            with open(file_path, "w") as file:
                file.write(error_msg)
        except Exception as error:
            import warnings

            warnings.warn(f"Unable to write error to file. {type(error).__name__}: {error}", stacklevel=2)

    def record_exception(self, e):
        """Writes the exception, its traceback and the time; nothing where no file is named."""
        path = self._get_error_file_path()
        if not path:
            return
        import json
        import time
        import traceback

        record = {
            "message": {
                "message": f"{type(e).__name__}: {e}",
                "extraInfo": {
                    "py_callstack": "".join(traceback.format_exception(type(e), e, e.__traceback__)),
                    "timestamp": str(int(time.time())),
                },
            }
        }
        # Whole or not at all: a supervisor may read it at any time.
        partial = f"{path}.{os.getpid()}"
        try:
            with open(partial, "w") as file:
                json.dump(record, file)
            os.replace(partial, path)
        except OSError:
            with open(path, "w") as file:
                json.dump(record, file)

    def record_success(self):
        """The function has returned. Writes nothing."""

    def maybe_enrich_signal_failure_message(self, message, error_file):
        """The message for a worker that a signal ended, which subclasses may add to."""
        return message

    def override_error_code_in_rootcause_data(self, rootcause_error_file, rootcause_error, error_code=0):
        """Puts the exit code of the failed worker into what it wrote."""
        message = rootcause_error.get("message")
        if isinstance(message, dict):
            message["errorCode"] = error_code
        else:
            _log.warning("no place for the error code %s in the error file %s", error_code, rootcause_error_file)

    def dump_error_file(self, rootcause_error_file, error_code=0):
        """Copies what a worker wrote into this process's own error file."""
        import json

        with open(rootcause_error_file) as file:
            record = json.load(file)
        if error_code:
            self.override_error_code_in_rootcause_data(rootcause_error_file, record, error_code)
        own = self._get_error_file_path()
        if not own:
            _log.error("no error file is named for this process, to copy %s to", rootcause_error_file)
            return
        self._rm(own)
        self._write_error_file(own, json.dumps(record))

    def _rm(self, my_error_file):
        """Removes an error file that is there before, and logs what it held."""
        if os.path.isfile(my_error_file):
            with open(my_error_file, errors="replace") as file:
                _log.warning("%s is replaced; it held:\n%s", my_error_file, file.read(65536))
            os.remove(my_error_file)
