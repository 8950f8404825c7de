"""Herdsman from Python: workers on this node (`herdsman.multiprocessing`, `record`), torch on them (`install`), and jobs
(`submit`, `Job`, `Executor`)."""

__version__ = "0.1.0"

#: Where each name comes from; imported when it is first used.
_HOMES = {
    "record": "herdsman.multiprocessing.errors",
    "get_error_handler": "herdsman.multiprocessing.errors",
    "install": "herdsman._install",
    "submit": "herdsman.jobs",
    "Job": "herdsman.jobs",
    "Executor": "herdsman.executor",
    "HerdError": "herdsman.errors",
    "InvalidJobError": "herdsman.errors",
    "NoSuchJobError": "herdsman.errors",
    "JobError": "herdsman.errors",
    "JobFailedError": "herdsman.errors",
    "JobCancelledError": "herdsman.errors",
    "JobRejectedError": "herdsman.errors",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name):
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_HOMES})
