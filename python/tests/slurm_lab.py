"""A real Slurm cluster of `lab/slurm`, for as long as the tests of one process run."""

import os
import shlex
import shutil
import subprocess
import tempfile

LAB = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "lab", "slurm")
#: Takes the cluster down when its standard input is closed: also when the tests are killed.
KEEPER = 'read -r _; "$0" --dir "$1" down && rm -rf "$1"'


class SlurmLab:
    """A cluster; `env` has the variables of a shell there."""

    def __init__(self, *options):
        # Sockets are in it, so its path is short, whatever TMPDIR says.
        self.directory = tempfile.mkdtemp(prefix="herd-slurm-", dir="/tmp")
        command = ["sh", "-c", KEEPER, LAB, self.directory]
        null = subprocess.DEVNULL
        self._keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True)
        try:
            self._lab("up", *options)
            self.env = self._variables(self._lab("env"))
        except BaseException:
            self.down()
            raise

    def _lab(self, *words):
        command = [LAB, "--dir", self.directory, *words]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{shlex.join(command)}: {done.stderr}"
        return done.stdout

    def _variables(self, exports):
        shell = subprocess.run(["bash", "-c", 'eval "$0"; exec env -0', exports], capture_output=True, text=True, check=True)
        found = dict(entry.partition("=")[::2] for entry in shell.stdout.split("\0") if entry)
        # In no job, whoever runs the tests.
        for name in ("_", "SLURM_JOB_ID", "HERD_JOB_ID", "HERD_CONFIG"):
            found.pop(name, None)
        return found

    def ask(self, *words):
        """What one of Slurm's own commands prints."""
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{shlex.join(words)}: {done.stderr}"
        return done.stdout

    def down(self):
        """Takes it down."""
        self._keeper.communicate(b"\n")
        assert self._keeper.returncode == 0, f"the cluster in {self.directory} did not go down"
        shutil.rmtree(self.directory, ignore_errors=True)
