"""`python -m herdsman._call DIRECTORY`: the process of a job that is one call, or of one task of many."""

import os
import sys
import traceback

from herdsman import _calls


def main(directory):
    index = int(os.environ.get("HERD_ARRAY_INDEX", "0"))
    # One result per call: other ranks of a job with several only take part.
    is_first = os.environ.get("HERD_RANK", "0") == "0"
    try:
        fn, args, kwargs = _calls.read_call(directory, index)
        result = "value", fn(*args, **kwargs)
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit):
            # As an exception it would end the caller.
            error = RuntimeError(f"the function called sys.exit({error.code!r})")
        result = "error", (error, traceback.format_exc())
    if is_first:
        _deliver(directory, index, result)
    return 0 if result[0] == "value" else 1


def _deliver(directory, index, result):
    kind, value = result
    try:
        _calls.write_result(directory, index, kind, value)
    except Exception as error:
        what = "the returned value" if kind == "value" else f"the exception {value[0]!r}"
        text = f"{what} cannot be pickled: {type(error).__name__}: {error}"
        _calls.write_result(directory, index, "error", (TypeError(text), traceback.format_exc()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
