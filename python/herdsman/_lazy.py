"""What keeps `import herdsman` cheap: loggers, and names of modules, that are made when they are asked for."""

import os
import sys

#: The logger above all of those. Like torch's, it hears of warnings alone unless LOGLEVEL or the program says otherwise.
_TOP = "herdsman.multiprocessing"


class LazyLogger:
    """What stands for the attribute `logger` of a module while that is not asked for: `logging` costs more than the rest of an
    import."""

    def __init__(self, module):
        self._module = module

    def __getattr__(self, attribute):
        # By the module: who has put another one there means it.
        return getattr(sys.modules[self._module].logger, attribute)


def lazy_names(module, homes=None):
    """The `__getattr__` of a module: its `logger`, which has its name, and names that are imported from elsewhere."""
    homes = homes or {}

    def __getattr__(name):
        if name == "logger":
            value = _make_logger(module)
        elif name in homes:
            from importlib import import_module

            value = getattr(import_module(homes[name]), name)
        else:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        setattr(sys.modules[module], name, value)
        return value

    return __getattr__


def _make_logger(name):
    import logging

    top = logging.getLogger(_TOP)
    if top.level == logging.NOTSET:
        try:
            top.setLevel(os.environ.get("LOGLEVEL", "WARNING"))
        except ValueError:
            top.setLevel(logging.WARNING)
    return logging.getLogger(name)
