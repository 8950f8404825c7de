"""Runs the command line and understands its answers: the stable JSON on stdout, the error and its hint on stderr."""

import json
import os
import subprocess

from herdsman import _binaries
from herdsman.errors import HerdError, InvalidJobError, NoSuchJobError

#: Exit code of faults in what was asked.
USAGE = 2


def argv(*words, home=None):
    """The command line for these words."""
    command = [_binaries.herd()]
    if home is not None:
        command += ["--home", os.fspath(home)]
    return command + list(words)


def environment():
    """Its environment: no colours in what is parsed."""
    return {**os.environ, "NO_COLOR": "1"}


def run(*words, home=None, stdin=None):
    """What the command writes to stdout. HerdError where it fails."""
    done = subprocess.run(
        argv(*words, home=home),
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        check=False,
    )
    # In a process that ignores SIGCHLD nobody is told the code of its children: Python takes it for 0.
    if done.returncode != 0 or (not done.stdout and b"error: " in done.stderr):
        raise understood(done.stderr, done.returncode)
    return done.stdout


def run_json(*words, home=None, stdin=None):
    """The JSON that the command answers with."""
    return json.loads(run(*words, home=home, stdin=stdin))


def understood(stderr, code):
    """The error that the command has written."""
    text = stderr.decode("utf-8", "replace")
    reason, hints = [], []
    into = None
    for line in text.splitlines():
        if line.startswith("error: "):
            into = reason
            line = line[len("error: ") :]
        elif line.startswith("hint: "):
            into = hints
            line = line[len("hint: ") :]
        if into is not None and line.strip():
            into.append(line)
    reason_text = "\n".join(reason) or text.strip() or f"herd ended with {code}"
    kind = HerdError
    if reason_text.startswith("no job"):
        kind = NoSuchJobError
    elif code == USAGE or reason_text.startswith("nothing was started"):
        kind = InvalidJobError
    return kind(reason_text, "\n".join(hints) or None, code)
