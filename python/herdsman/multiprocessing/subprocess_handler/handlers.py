"""Starting one worker that is a program."""

from herdsman.multiprocessing.subprocess_handler.subprocess_handler import SubprocessHandler

__all__ = ["get_subprocess_handler"]


def get_subprocess_handler(entrypoint, args, env, stdout, stderr, local_rank_id, numa_options=None):
    """Starts the program and returns its handler."""
    return SubprocessHandler(
        entrypoint=entrypoint,
        args=args,
        env=env,
        stdout=stdout,
        stderr=stderr,
        local_rank_id=local_rank_id,
        numa_options=numa_options,
    )
