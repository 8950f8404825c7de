"""`python -m herdsman._call DIRECTORY call|task`: the process of a job that is one call, or of one task of many."""

import os
import sys
import time
import traceback

from herdsman import _calls

#: Seconds in which a job whose call was cancelled before it began is cancelled itself.
_CANCEL_SECONDS = 10


def main(directory, kind):
    # A call that a task has made has the variable, too.
    index = int(os.environ["HERD_ARRAY_INDEX"]) if kind == "task" else 0
    try:
        if not _calls.claim(directory, index, "running"):
            if kind == "call":
                # The job is about to be cancelled, and is to end so. Other tasks of an array go on.
                time.sleep(_CANCEL_SECONDS)
            return 0
        fn, args, kwargs = _calls.read_call(directory, index)
        value = fn(*args, **kwargs)
    except BaseException as error:
        # Whatever it is: the caller gets what the function has raised, and decides.
        _deliver_error(directory, index, error)
        return 1
    try:
        _calls.write_value(directory, index, value)
    except OSError as error:
        _deliver_error(directory, index, error)
        return 1
    except Exception as error:
        fault = TypeError(f"the returned value cannot be pickled: {type(error).__name__}: {error}")
        _calls.write_error(directory, index, fault, traceback.format_exc())
        return 1
    return 0


def _deliver_error(directory, index, error):
    text = traceback.format_exc()
    # What the job's log shows, too.
    sys.stderr.write(text)
    _calls.write_error(directory, index, error, text)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
