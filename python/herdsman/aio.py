"""The same for `async` programs: `await aio.submit(…)`, `await job`, `async for line in aio.logs(job)`."""

import asyncio
import json

from herdsman import _command, jobs


async def submit(job, **options):
    """As `herdsman.submit`."""
    return await asyncio.to_thread(lambda: jobs.submit(job, **options))


async def wait(job, timeout=None):
    """As `Job.wait`. Cancelled, it leaves the job running and no process behind."""
    words = jobs.bound(timeout)
    process = await _start(job, "wait", *words, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE)
    try:
        _, stderr = await process.communicate()
    finally:
        await _end(process)
    return await asyncio.to_thread(job._after_wait, process.returncode, stderr, timeout)


async def result(job, timeout=None):
    """As `Job.result`."""
    await wait(job, timeout)
    return await asyncio.to_thread(job._result)


async def logs(job, *words):
    """The lines that it writes, until it ends."""
    async for line in _lines(job, "logs", "--follow", *words):
        yield line


async def events(job):
    """What happens to it, until it ends."""
    async for line in _lines(job, "events", "-o", "json", "--follow"):
        yield json.loads(line)


async def cancel(job, **options):
    """As `Job.cancel`."""
    await asyncio.to_thread(lambda: job.cancel(**options))


async def _start(job, command, *words, **streams):
    return await asyncio.create_subprocess_exec(
        *job._argv(command, *words), stdin=asyncio.subprocess.DEVNULL, env=_command.environment(), **streams
    )


async def _end(process):
    if process.returncode is None:
        process.kill()
        await process.wait()


async def _lines(job, command, *words):
    process = await _start(
        job, command, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, limit=1 << 20
    )
    try:
        async for line in process.stdout:
            yield line.decode("utf-8", "replace").rstrip("\n")
    finally:
        await _end(process)
