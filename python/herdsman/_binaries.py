"""Where the programs of this package are: `herd`, `herd-node`, `herdrun`."""

import os
import sys


def find(name, variable):
    """The path of one of the programs: what the variable names, else beside this package, else on PATH."""
    named = os.environ.get(variable)
    if named:
        return named
    for directory in _directories():
        path = os.path.join(directory, name)
        if os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(
        f"cannot find the program {name} of the package herdsman beside it or on PATH\n"
        f"hint: install the package again (pip install --force-reinstall herdsman), or name the program in {variable}"
    )


def _directories():
    package = os.path.dirname(os.path.abspath(__file__))
    # <prefix>/lib/pythonX.Y/site-packages/herdsman, and what `pip install --target` makes of it.
    yield os.path.normpath(os.path.join(package, "..", "..", "..", "..", "bin"))
    yield os.path.normpath(os.path.join(package, "..", "bin"))
    yield os.path.join(sys.prefix, "bin")
    yield from os.environ.get("PATH", os.defpath).split(os.pathsep)


def herd():
    """The command line."""
    return find("herd", "HERDSMAN_HERD")


def herd_node():
    """The small binary, which has the supervisor of workers."""
    return find("herd-node", "HERDSMAN_HERD_NODE")
