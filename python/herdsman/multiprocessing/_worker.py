"""The process of a worker that is a function: what happens in it, in which order."""

import os
import sys
import time

from herdsman import _signals, numa
from herdsman.multiprocessing.errors import record
from herdsman.multiprocessing.redirects import redirect_stderr, redirect_stdout

#: What the parent sends when every worker's value was read.
RELEASE = b"r"
#: First byte of what a worker sends: a value, the exit code it is about to end with, or why it fails.
VALUE, CODE, TRACEBACK = b"v", b"c", b"t"
#: Seconds that a worker without a parent gives its supervisor to end what is below it.
_ORPHAN_SECONDS = 3


def get_std_cm(std_rd, redirect_fn):
    """The context that redirects to a file; one that does nothing where there is none."""
    from contextlib import nullcontext

    return redirect_fn(std_rd) if std_rd else nullcontext()


def _wrap(
    local_rank,
    fn,
    args,
    envs,
    stdout_redirects,
    stderr_redirects,
    ret_vals,
    queue_finished_reading_event,
    numa_options,
):
    """Runs the function of one rank, hands over what it returns, and waits until that was read."""
    arguments, env, returned = args[local_rank], envs[local_rank], ret_vals[local_rank]
    stdout, stderr = stdout_redirects[local_rank], stderr_redirects[local_rank]
    for key, value in env.items():
        os.environ[key] = value
    with get_std_cm(stdout, redirect_stdout), get_std_cm(stderr, redirect_stderr):
        fn = numa._maybe_wrap_with_numa_binding(fn, device_index=local_rank, numa_options=numa_options)
        value = record(fn)(*arguments)
    returned.put(value)
    queue_finished_reading_event.wait()


class _Channel:
    """The socket to the parent, as `_wrap` wants it."""

    def __init__(self, connection):
        self._descriptor = os.dup(connection.fileno())
        connection.close()
        os.set_blocking(self._descriptor, True)

    def send(self, kind, data):
        header = kind + len(data).to_bytes(8, "big")
        for piece in (header, data):
            view = memoryview(piece)
            while view:
                view = view[os.write(self._descriptor, view) :]

    def put(self, value):
        from multiprocessing.reduction import ForkingPickler

        self.send(VALUE, ForkingPickler.dumps(value))

    def wait(self):
        if os.read(self._descriptor, 1) != RELEASE:
            # The parent has died: the supervisor ends this process together with what it has started.
            time.sleep(_ORPHAN_SECONDS)
            os._exit(1)


def _end_at_once():
    """Signals that would raise an exception of ours end the process from now on: one that is raised when Python is about to
    leave a forked process would go on in the frames of its parent, as a second one."""
    import signal

    from herdsman.multiprocessing._context import _terminate_process_handler

    for number in _signals.ENDING:
        if signal.getsignal(number) is _terminate_process_handler:
            signal.signal(number, signal.SIG_DFL)


def main(local_rank, connection, marker, fn, args, env, stdout, stderr, numa_options):
    """What a worker's process runs."""
    name, _, value = marker.partition("=")
    os.environ[name] = value
    channel = _Channel(connection)
    try:
        _run(local_rank, channel, fn, args, env, stdout, stderr, numa_options)
    finally:
        _end_at_once()


def _run(local_rank, channel, fn, args, env, stdout, stderr, numa_options):
    one = {local_rank: args}, {local_rank: env}, {local_rank: stdout}, {local_rank: stderr}, {local_rank: channel}
    try:
        _signals.forked()
        _wrap(local_rank, fn, *one, channel, numa_options)
        code = 0
    except SystemExit as error:
        code = _exit_code(error.code)
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        import traceback

        code = 1
        _try(channel, TRACEBACK, traceback.format_exc())
    if code:
        _try(channel, CODE, str(code))
        sys.exit(code)


def _exit_code(code):
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _try(channel, kind, text):
    try:
        channel.send(kind, text.encode("utf-8", "replace"))
    except OSError:
        pass  # nobody is left to be told
