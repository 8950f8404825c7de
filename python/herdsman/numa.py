"""Binding workers to the processors near their accelerators, as torchrun's `--numa-binding` has it."""

import os

from herdsman._lazy import LazyLogger, lazy_names

_log = LazyLogger(__name__)
# An enumeration and a dataclass cost more than importing the rest.
__getattr__ = lazy_names(__name__, dict.fromkeys(("AffinityMode", "NumaOptions"), "herdsman._numa_options"))


def cpus_for(device_index, numa_options, root="/sys", devices=None):
    """The processors of the worker with that device, ascending. RuntimeError where it cannot be bound."""
    from herdsman import _native

    mode = getattr(numa_options.affinity_mode, "value", numa_options.affinity_mode)
    if devices is None:
        visible = os.environ.get("HIP_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES"))
        devices = _native.visible_accelerators(root, visible)
    return _native.numa_cpus(root, mode, devices, device_index, sorted(os.sched_getaffinity(0)))


def _has_numactl():
    import shutil

    return shutil.which("numactl") is not None


def _bound(device_index, numa_options, bind):
    """What `bind` makes of the processors; None where it falls back to no binding."""
    try:
        if not _has_numactl():
            raise RuntimeError("numactl is not on PATH\nhint: install it (Debian: numactl)")
        return bind(cpus_for(device_index, numa_options))
    except Exception:
        if numa_options.should_fall_back_if_binding_fails:
            _log.warning("cannot bind device %s; goes on without binding", device_index, exc_info=True)
            return None
        _log.exception("cannot bind device %s", device_index)
        raise


def _maybe_wrap_command_args_with_numa_binding(command_args, *, device_index, numa_options):
    """The command under `numactl`, where it is to be bound."""
    if numa_options is None:
        return command_args
    from herdsman import _native

    def bind(cpus):
        return ("numactl", f"--physcpubind={_native.cpu_ranges(cpus)}", *command_args)

    return _bound(device_index, numa_options, bind) or command_args


def _maybe_wrap_with_numa_binding(func, *, device_index, numa_options):
    """The function in a process whose threads are bound, where it is to be."""
    if numa_options is None:
        return func
    from functools import wraps

    @wraps(func)
    def wrapped(*args, **kwargs):
        _bound(device_index, numa_options, _bind_threads)
        return func(*args, **kwargs)

    return wrapped


def _bind_threads(cpus):
    """Binds the main thread and all that may run where it might; True."""
    before = os.sched_getaffinity(0)
    for name in os.listdir("/proc/self/task"):
        try:
            if os.sched_getaffinity(int(name)) == before:
                os.sched_setaffinity(int(name), cpus)
        except ProcessLookupError:
            pass  # a thread that has ended
    return True
