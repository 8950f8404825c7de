"""The text of a `ChildFailedError`."""

from herdsman._lazy import LazyLogger
from herdsman.multiprocessing.errors._failure import NOT_AVAILABLE

logger = LazyLogger("herdsman.multiprocessing.errors")

_WIDEST = 60


def _shown(failure, error_handler):
    message = failure.message
    if isinstance(message, dict):
        inner = message.get("extraInfo", {}).get("py_callstack", message.get("message", NOT_AVAILABLE))
        message = str(inner).replace("\n", "\n  ")
    if failure.exitcode < 0:
        try:
            message = error_handler.maybe_enrich_signal_failure_message(message, failure.error_file)
        except Exception:
            logger.warning("an error handler failed to add to a message", exc_info=True)
    return message


def block(index, rank, failure, error_handler):
    """The lines about one failed worker."""
    import socket

    name = failure.signal_name()
    signal = f" ({name})" if name != NOT_AVAILABLE else ""
    lines = [
        f"[{index}]:",
        f"  time      : {failure.timestamp_isoformat()}",
        f"  host      : {socket.getfqdn()}",
        f"  rank      : {rank} (local_rank: {failure.local_rank})",
        f"  exitcode  : {failure.exitcode} (pid: {failure.pid}) {signal}",
        f"  error_file: {failure.error_file}",
        f"  traceback : {_shown(failure, error_handler)}",
    ]
    return "\n".join(lines)


def report(name, failures, root_rank, error_handler, border="=", rule="-"):
    """The whole text: the root cause last."""
    title = f"{name} FAILED"
    root, others = "", []
    width = len(title)
    for index, (rank, failure) in enumerate(failures.items()):
        text = block(index, rank, failure, error_handler)
        width = max([width, *map(len, text.split("\n"))])
        if rank == root_rank:
            root = text
        else:
            others.append(text)
    width = min(width, _WIDEST)
    parts = ["", border * width, title, rule * width, "Failures:"]
    parts += others or ["  <NO_OTHER_FAILURES>"]
    parts += [rule * width, "Root Cause (first observed failure):", root, border * width]
    return "\n".join(parts)
