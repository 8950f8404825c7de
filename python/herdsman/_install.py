"""Makes `torch.distributed.elastic.multiprocessing` this package's, before torch imports its own.

Whoever imports torch's module, or one below it, gets ours of the same name. A torch that asks of the module what ours does
not have is left alone, with a warning.
"""

import ast
import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import warnings

THEIRS = "torch.distributed.elastic.multiprocessing"
OURS = "herdsman.multiprocessing"
_MODULES = (
    "",
    ".api",
    ".errors",
    ".errors.error_handler",
    ".errors.handlers",
    ".redirects",
    ".subprocess_handler",
    ".subprocess_handler.handlers",
    ".subprocess_handler.subprocess_handler",
    ".tail_log",
)
_OTHER_TORCH = "use a torch from 2.6 on, or leave out herdsman.install()"
#: What `start_processes` must take, in this order; torch may have fewer, never others.
_PARAMETERS = (
    "name",
    "entrypoint",
    "args",
    "envs",
    "logs_specs",
    "log_line_prefixes",
    "start_method",
    "numa_options",
    "duplicate_stdout_filters",
    "duplicate_stderr_filters",
)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds our module where torch's is asked for."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname == THEIRS or fullname.startswith(THEIRS + "."):
            suffix = fullname[len(THEIRS) :]
            if suffix in _MODULES:
                return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        module = importlib.import_module(OURS + spec.name[len(THEIRS) :])
        # The import system writes the new name's specification into the module, which keeps its own.
        self._own = {name: getattr(module, name) for name in ("__spec__", "__loader__", "__package__", "__path__") if hasattr(module, name)}
        return module

    def exec_module(self, module):
        for name, value in self._own.items():
            setattr(module, name, value)


def install():
    """Has torch use this package for its workers. Call it before `torch.distributed` is imported (`import torch` is fine).

    Returns whether it was done: False, with a warning, where this torch's own modules would not fit, or where they are
    imported already.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return True
    imported = sys.modules.get(THEIRS)
    if imported is not None:
        return _leave(
            f"{THEIRS} was imported before", "call herdsman.install() before whatever imports torch.distributed, at the program's top"
        )
    directory = _torch_directory()
    if directory is None:
        return _leave("there is no torch", "pip install torch")
    reason = _unfit(directory)
    if reason is not None:
        return _leave(f"this torch does not fit: {reason}", _OTHER_TORCH)
    sys.meta_path.insert(0, _Finder())
    return True


def _leave(reason, hint):
    warnings.warn(f"torch is left with its own launcher: {reason}\nhint: {hint}", RuntimeWarning, stacklevel=3)
    return False


def _torch_directory():
    torch = sys.modules.get("torch")
    if torch is not None:
        return os.path.dirname(torch.__file__)
    # Found, not imported.
    spec = importlib.machinery.PathFinder.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    return list(spec.submodule_search_locations)[0]


def _unfit(directory):
    """Why the torch in this directory cannot use our module; None where it can."""
    elastic = os.path.join(directory, "distributed", "elastic")
    try:
        own = _parse(os.path.join(elastic, "multiprocessing", "__init__.py"))
        parameters = _parameters_of(own, "start_processes")
        users = [
            _parse(path)
            for path in (
                os.path.join(elastic, "agent", "server", "api.py"),
                os.path.join(elastic, "agent", "server", "local_elastic_agent.py"),
                os.path.join(directory, "distributed", "launcher", "api.py"),
                os.path.join(directory, "distributed", "run.py"),
            )
        ]
    except (OSError, SyntaxError) as error:
        return f"its modules cannot be read: {error}"
    if parameters != _PARAMETERS[: len(parameters)] or "logs_specs" not in parameters:
        return f"its start_processes takes {', '.join(parameters)}"
    for tree in users:
        for module, name in _imported_from(tree):
            if module[len(THEIRS) :] not in _MODULES:
                return f"it imports {module}"
            ours = importlib.import_module(OURS + module[len(THEIRS) :])
            if not hasattr(ours, name):
                return f"it imports {name} from {module}"
    return None


def _parse(path):
    with open(path, "rb") as file:
        return ast.parse(file.read(), path)


def _parameters_of(tree, function):
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return tuple(argument.arg for argument in node.args.args)
    return ()


def _imported_from(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and (node.module + ".").startswith(THEIRS + "."):
            for alias in node.names:
                yield node.module, alias.name
