"""Calls and their results as files of one directory, written whole or not at all: `<index>.call` and `<index>.result`.
`<index>.claim` says who was first: the job, which runs the call, or the caller, who has cancelled it."""

import os
import pickle
import sys


#: Variable that tells a call that it is one.
MARK = "HERDSMAN_CALL"


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
        # What must be known before a function is unpickled: whose bytecode it is, and the path by which the caller finds its
        # modules.
        data = pickle.dumps((sys.version_info[:2], sys.path)) + cloudpickle.dumps(call)
        _write(os.path.join(directory, f"{index}.call"), data)


def claim(directory, index, word):
    """Says of a call that it is `running` or `cancelled`, once: whether nobody has said anything before, or the same."""
    path = os.path.join(directory, f"{index}.claim")
    try:
        # A link is there at once with what it says.
        os.symlink(word, path)
    except FileExistsError:
        return os.readlink(path) == word
    return True


def read_call(directory, index):
    """The call with an index."""
    try:
        file = open(os.path.join(directory, f"{index}.call"), "rb")
    except FileNotFoundError as error:
        raise RuntimeError(
            f"the call is not there: {error.filename}\n"
            "hint: the program that made it has ended; or name a folder= that this node sees in Executor(…)"
        ) from None
    with file:
        version, path = pickle.load(file)
        if version != sys.version_info[:2]:
            raise RuntimeError(
                f"the call is from Python {_text(version)}, and the job has Python {_text(sys.version_info[:2])} "
                f"({sys.executable}): functions are sent as bytecode, which differs\n"
                "hint: name the same version in Executor(python=…)"
            )
        for entry in path:
            if entry not in sys.path:
                sys.path.append(entry)
        return pickle.load(file)


def _text(version):
    return ".".join(map(str, version))


def write_value(directory, index, value):
    """Writes what a call has returned. Raises what pickling it raises."""
    _write_result(directory, index, pickler().dumps(value), None)


def write_error(directory, index, error, traceback):
    """Writes what a call has raised, and its traceback as a text, which arrives whatever the exception is made of."""
    try:
        data = pickler().dumps(error)
        # One that takes other arguments than it hands on can be pickled and not unpickled.
        pickle.loads(data)
    except Exception as fault:
        text = f"{type(error).__name__}: {error} (the exception itself cannot be pickled: {type(fault).__name__}: {fault})"
        data = pickle.dumps(RuntimeError(text))
    _write_result(directory, index, data, traceback)


def _write_result(directory, index, data, traceback):
    _write(os.path.join(directory, f"{index}.result"), pickle.dumps(traceback) + data)


def read_result(directory, index):
    """What a call has come to: `("value", value)` or `("error", exception)`; None while there is nothing."""
    try:
        with open(os.path.join(directory, f"{index}.result"), "rb") as file:
            traceback = pickle.load(file)
            try:
                value = pickle.load(file)
            except Exception as error:
                text = traceback or "the value that the call returned cannot be unpickled here"
                return "error", caused(error, text)
    except FileNotFoundError:
        return None
    return ("value", value) if traceback is None else ("error", caused(value, traceback))


def caused(error, text):
    """The exception with the text of a remote traceback as its cause."""
    error.__cause__ = RemoteTraceback(text)
    return error


def _write(path, data):
    partial = f"{path}.{os.getpid()}.part"
    with open(partial, "wb") as file:
        file.write(data)
    os.replace(partial, path)
