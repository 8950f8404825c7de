"""The same for `async` programs: `await aio.submit(…)`, `await job`, `async for line in aio.logs(job)`."""

import asyncio
import json
import os
import subprocess

from herdsman import _command, jobs

#: Bytes that are read at once, and of a line that is handed out whole.
_READ, _LONGEST = 1 << 16, 1 << 20


async def submit(job, **options):
    """As `herdsman.submit`."""
    return await asyncio.to_thread(lambda: jobs.submit(job, **options))


async def wait(job, timeout=None):
    """As `Job.wait`. Cancelled, it leaves the job running and no process behind."""
    command = _Command(job._argv("wait", *jobs.bound(timeout)), "stderr")
    try:
        said = b"".join([line async for line in command])
        code = await asyncio.to_thread(command.process.wait)
    finally:
        command.end()
    return await asyncio.to_thread(job._after_wait, code, said, timeout)


async def result(job, timeout=None):
    """As `Job.result`."""
    await wait(job, timeout)
    return await asyncio.to_thread(job._result)


def logs(job, *words, **selection):
    """The lines that it writes, until it ends: an asynchronous iterator. The selection is that of `Job.logs`."""
    words = [*words, *jobs.log_words(**selection)]
    return _Lines(job._argv("logs", "--follow", *words), lambda line: line.decode("utf-8", "replace").rstrip("\n"))


def events(job):
    """What happens to it, until it ends: an asynchronous iterator."""
    return _Lines(job._argv("events", "-o", "json", "--follow"), json.loads)


async def cancel(job, **options):
    """As `Job.cancel`."""
    await asyncio.to_thread(lambda: job.cancel(**options))


class _Command:
    """A command and the lines, as bytes, that it writes to one of its streams.

    Not one of asyncio's: those are reaped by whoever sends them a signal, beside their watcher, which then complains. It ends
    with its last reference, without a task that a closing loop would have to wait for.
    """

    process = None

    def __init__(self, argv, stream):
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        streams[stream] = subprocess.PIPE
        self.process = subprocess.Popen(argv, env=_command.environment(), **streams)
        self._stream = getattr(self.process, stream)
        os.set_blocking(self._stream.fileno(), False)
        self._held = b""

    def __aiter__(self):
        return self

    async def __anext__(self):
        while True:
            line, newline, rest = self._held.partition(b"\n")
            if newline or len(line) >= _LONGEST:
                self._held = rest
                return line + newline
            data = await self._read()
            if not data:
                self._held = b""
                if line:
                    return line
                raise StopAsyncIteration
            self._held += data

    async def _read(self):
        loop = asyncio.get_running_loop()
        while True:
            try:
                return os.read(self._stream.fileno(), _READ)
            except BlockingIOError:
                pass
            readable = loop.create_future()
            loop.add_reader(self._stream.fileno(), _tell, readable)
            try:
                await readable
            finally:
                loop.remove_reader(self._stream.fileno())

    def end(self):
        """Ends it where it has not ended. It has nothing to finish."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self._stream.close()

    __del__ = end


class _Lines:
    """What a command writes to its standard output, line by line. It runs from the first line on."""

    def __init__(self, argv, read):
        self._argv = argv
        self._convert = read
        self._command = None
        self._closed = False

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self._closed:
            raise StopAsyncIteration
        if self._command is None:
            self._command = _Command(self._argv, "stdout")
        try:
            return self._convert(await self._command.__anext__())
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self):
        """Ends the command; there are no more lines."""
        self._closed = True
        command, self._command = self._command, None
        if command is not None:
            command.end()


def _tell(future):
    if not future.done():
        future.set_result(None)
