"""Calls and their results as files: `<index>.call` and `<index>.result` in one directory, written whole or not at all."""

import os
import pickle
import sys


class RemoteTraceback(Exception):
    """The traceback of an exception in a job, as a text: the cause of the exception here."""

    def __init__(self, text):
        super().__init__(text)
        self.text = text

    def __str__(self):
        return f"\n{self.text}"

    def __reduce__(self):
        return (type(self), (self.text,))


def pickler():
    """cloudpickle, which takes functions of `__main__` and closures along."""
    try:
        import cloudpickle
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "functions are sent to jobs with cloudpickle, which is not installed\nhint: pip install 'herdsman[executor]'"
        ) from None
    return cloudpickle


def write_calls(directory, calls):
    """Writes all calls, each (function, arguments, keyword arguments)."""
    cloudpickle = pickler()
    for index, call in enumerate(calls):
        # The path by which the caller finds its modules comes first: unpickling a function may import them.
        data = pickle.dumps(sys.path) + cloudpickle.dumps(call)
        _write(os.path.join(directory, f"{index}.call"), data)


def read_call(directory, index):
    """The call with an index."""
    with open(os.path.join(directory, f"{index}.call"), "rb") as file:
        for entry in pickle.load(file):
            if entry not in sys.path:
                sys.path.append(entry)
        return pickle.load(file)


def write_result(directory, index, kind, value):
    """Writes what a call has come to: `("value", value)` or `("error", (exception, traceback))`."""
    _write(os.path.join(directory, f"{index}.result"), pickler().dumps((kind, value)))


def read_result(directory, index):
    """What a call has come to; None while there is nothing."""
    try:
        with open(os.path.join(directory, f"{index}.result"), "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    try:
        return pickle.loads(data)
    except Exception as error:
        return "error", (error, f"the result of the call cannot be unpickled: {error}")


def _write(path, data):
    partial = f"{path}.{os.getpid()}.part"
    with open(partial, "wb") as file:
        file.write(data)
    os.replace(partial, path)
