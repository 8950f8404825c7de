"""The directory of an executor's calls, which goes with the process that made it: at its end, or by the next one."""

import fcntl
import os
import shutil
import tempfile

_PREFIX = "executor-"
#: Locked by the process that the folder belongs to; holds the name of its machine.
_OWNER = "owner"


class Folder:
    """A directory of its own below `parent`. Those that dead processes of this machine have left there are removed."""

    def __init__(self, parent):
        os.makedirs(parent, mode=0o700, exist_ok=True)
        _sweep(parent)
        # mkdtemp makes it for this user alone: what is unpickled runs.
        self.path = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        self._owner = os.open(os.path.join(self.path, _OWNER), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        if _lock(self._owner):
            # Only then: what is empty is nobody's to judge.
            os.write(self._owner, _machine())
        self._count = 0

    def next(self):
        """A new directory in it."""
        self._count += 1
        directory = os.path.join(self.path, str(self._count))
        os.mkdir(directory)
        return directory

    def remove(self):
        """Removes it, once."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._owner is not None:
            os.close(self._owner)
            self._owner = None


def default_parent(home):
    """Below herd's directory of jobs."""
    home = home or os.environ.get("HERD_HOME")
    if home is None:
        state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        home = os.path.join(state, "herd")
    return os.path.join(home, "python")


def _sweep(parent):
    for name in os.listdir(parent):
        if not name.startswith(_PREFIX):
            continue
        path = os.path.join(parent, name)
        try:
            owner = os.open(os.path.join(path, _OWNER), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # being made or removed, or somebody else's
        try:
            # The kernel frees the lock with the process. Another machine's may not be seen here.
            if _lock(owner) and os.read(owner, 256) == _machine():
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass
        finally:
            os.close(owner)


def _lock(descriptor):
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False  # somebody's, or of a file system without locks
    return True


def _machine():
    return os.fsencode(os.uname().nodename)
