"""Starting and looking after the worker processes of one node, with the interface of
`torch.distributed.elastic.multiprocessing` and without torch."""

from herdsman._lazy import lazy_names
from herdsman.multiprocessing.api import (
    DefaultLogsSpecs,
    LogsSpecs,
    MultiprocessContext,
    PContext,
    SignalException,
    Std,
    SubprocessContext,
    _validate_full_rank,
    to_map,
)

__all__ = [
    "start_processes",
    "MultiprocessContext",
    "PContext",
    "ProcessFailure",
    "RunProcsResult",
    "SignalException",
    "Std",
    "LogsDest",
    "LogsSpecs",
    "DefaultLogsSpecs",
    "SubprocessContext",
    "to_map",
]

__getattr__ = lazy_names(
    __name__, dict.fromkeys(("LogsDest", "ProcessFailure", "RunProcsResult"), "herdsman.multiprocessing.api")
)


def __dir__():
    return sorted({*globals(), *__all__})


def start_processes(
    name,
    entrypoint,
    args,
    envs,
    logs_specs,
    log_line_prefixes=None,
    start_method="spawn",
    numa_options=None,
    duplicate_stdout_filters=None,
    duplicate_stderr_filters=None,
):
    """Starts `len(args)` workers, all or none, and returns their `PContext`.

    A text as `entrypoint` is a program, anything else a function. `args` and `envs` have what each local rank gets: a tuple
    of arguments, and variables over those of this process. `logs_specs` says where they write. `start_method` is for
    functions: spawn, fork or forkserver. Lines that are shown and have any of the filters' texts go into a file besides.
    """
    nprocs = len(args)
    _validate_full_rank(args, nprocs, "args")
    _validate_full_rank(envs, nprocs, "envs")
    common = {
        "name": name,
        "entrypoint": entrypoint,
        "args": args,
        "envs": envs,
        "logs_specs": logs_specs,
        "log_line_prefixes": log_line_prefixes,
        "numa_options": numa_options,
        "duplicate_stdout_filters": duplicate_stdout_filters,
        "duplicate_stderr_filters": duplicate_stderr_filters,
    }
    if isinstance(entrypoint, str):
        context = SubprocessContext(**common)
    else:
        context = MultiprocessContext(start_method=start_method, **common)
    try:
        context.start()
    except BaseException:
        context.close()
        raise
    return context
