"""The package under real torch: unmodified torchrun and accelerate on it, and the same names and signatures."""

import importlib
import inspect
import json
import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODULES = [
    "",
    ".api",
    ".errors",
    ".errors.error_handler",
    ".errors.handlers",
    ".redirects",
    ".subprocess_handler",
    ".tail_log",
]


def torchrun(*args, **options):
    # Ours is in use, or the warning is an error.
    command = [sys.executable, "-W", "error::RuntimeWarning", "-m", "herdsman.torchrun", "--standalone", *args]
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run(command, stderr=subprocess.PIPE, timeout=300, **options)


@pytest.mark.parametrize("suffix", MODULES)
def test_names_and_signatures_are_those_of_torch(suffix):
    theirs = importlib.import_module("torch.distributed.elastic.multiprocessing" + suffix)
    ours = importlib.import_module("herdsman.multiprocessing" + suffix)
    assert theirs is not ours
    names = getattr(theirs, "__all__", None) or ["redirect", "redirect_stdout", "redirect_stderr"]
    if suffix == ".api":
        names = [*names, "_validate_full_rank", "_wrap", "_terminate_process_handler"]
    for name in names:
        compare(getattr(theirs, name), getattr(ours, name), name)


def compare(theirs, ours, name):
    if inspect.isclass(theirs):
        assert inspect.isclass(ours), name
        for method, value in vars(theirs).items():
            if inspect.isfunction(value) and (not method.startswith("_") or method == "__init__"):
                if method in ("reify",):
                    continue
                assert hasattr(ours, method), f"{name}.{method}"
                compare(value, getattr(ours, method), f"{name}.{method}")
        assert [base.__name__ for base in theirs.__mro__] == [base.__name__ for base in ours.__mro__]
        return
    if not inspect.isroutine(theirs):
        return
    their_parameters = inspect.signature(theirs).parameters.values()
    our_parameters = inspect.signature(ours).parameters.values()
    assert [(p.name, p.kind) for p in our_parameters] == [(p.name, p.kind) for p in their_parameters], name
    for their_parameter, our_parameter in zip(their_parameters, our_parameters):
        has_default = their_parameter.default is not inspect.Parameter.empty
        assert has_default == (our_parameter.default is not inspect.Parameter.empty), name
        if has_default and isinstance(their_parameter.default, (int, float, str, type(None))):
            is_made = "factory" in repr(their_parameter.default)
            assert is_made or int_or_self(our_parameter.default) == int_or_self(their_parameter.default), name


def int_or_self(value):
    return int(value) if isinstance(value, int) else value


def test_digits_are_learned_under_torchrun(tmp_path):
    done = torchrun("--nproc-per-node", "2", os.path.join(ROOT, "examples/digits/train.py"), "--epochs", "4", cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    accuracy = [float(number) for number in re.findall(r"accuracy[ =:]+([0-9.]+)", done.stdout.decode())]
    assert accuracy and accuracy[-1] > 0.7, done.stdout.decode()


#: Says which threads of gloo are there when Python ends.
THREADS_AT_EXIT = """
import atexit, glob, os, runpy, sys
def threads():
    names = [open(path).read().strip() for path in glob.glob("/proc/self/task/*/comm")]
    # In one piece: both ranks write to one pipe.
    os.write(1, f"threads of gloo: {[name for name in names if 'gloo' in name]}\\n".encode())
atexit.register(threads)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_digits_leave_no_thread_of_gloo_to_the_end_of_python(tmp_path):
    # Such a thread may hold the tensor of the last reduction, and aborts the process when it gives it back too late.
    (tmp_path / "threads.py").write_text(THREADS_AT_EXIT)
    training = [str(tmp_path / "threads.py"), os.path.join(ROOT, "examples/digits/train.py"), "--epochs", "1"]
    done = torchrun("--nproc-per-node", "2", *training, cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().count("threads of gloo: []") == 2, done.stdout.decode()


#: The first attempt loses rank 1 in the middle of the training, the second learns to the end.
FAILS_ONCE = """
import os, runpy, sys
from torch.distributed.elastic.multiprocessing.errors import record
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
if attempt == "0" and os.environ["RANK"] == "1":
    import torch.distributed as dist
    whole, steps = dist.all_reduce, iter(range(1))
    def broken(*args, **kwargs):
        if next(steps, None) is None:
            raise RuntimeError("rank 1 breaks off")
        return whole(*args, **kwargs)
    dist.all_reduce = broken
@record
def main():
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
main()
sys.stdout.flush()
# A thread of torch that comes after the interpreter's end aborts the process, on busy machines now and then.
os._exit(0)
"""


def test_digits_are_learned_in_the_second_attempt(tmp_path):
    (tmp_path / "once.py").write_text(FAILS_ONCE)
    logs = ["--redirects", "3", "--tee", "3", "--log-dir", str(tmp_path / "logs"), "--max-restarts", "1"]
    training = [str(tmp_path / "once.py"), os.path.join(ROOT, "examples/digits/train.py"), "--epochs", "4"]
    # torch's agent keeps one store for all attempts and empties it never: who is early in the second one would connect to
    # the address that the other rank had in the first. Asked so, rank 0 opens a store for each attempt.
    environment = {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    done = torchrun("--nproc-per-node", "2", *logs, *training, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr.decode()
    accuracy = [float(number) for number in re.findall(r"accuracy[ =:]+([0-9.]+)", done.stdout.decode())]
    assert accuracy and accuracy[-1] > 0.7, done.stdout.decode()
    (run,) = (tmp_path / "logs").iterdir()
    message = json.loads((run / "attempt_0" / "1" / "error.json").read_text())["message"]["message"]
    assert message == "RuntimeError: rank 1 breaks off"
    assert not list((run / "attempt_1").glob("*/error.json"))


#: No rank ends before all have written why they fail.
FAILING = """
import glob, os, sys, time
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    rank, attempt = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
    print(f"rank {rank} attempt {attempt}", flush=True)
    raise RuntimeError(f"of rank {rank} in attempt {attempt}")
try:
    main()
finally:
    attempt_directory = os.path.dirname(os.path.dirname(os.environ["TORCHELASTIC_ERROR_FILE"]))
    end = time.monotonic() + 120
    while len(glob.glob(attempt_directory + "/*/error.json")) < int(os.environ["WORLD_SIZE"]) and time.monotonic() < end:
        time.sleep(0.01)
"""


def test_two_attempts_with_error_files_and_a_report(tmp_path):
    (tmp_path / "fail.py").write_text(FAILING)
    args = ["--nproc-per-node", "2", "--max-restarts", "1", "--redirects", "3", "--log-dir", str(tmp_path / "logs")]
    env = {**os.environ, "TORCHELASTIC_ERROR_FILE": str(tmp_path / "own.json")}
    done = torchrun(*args, str(tmp_path / "fail.py"), env=env)
    text = done.stderr.decode()
    assert done.returncode == 1
    assert "fail.py FAILED\n" in text and "Root Cause (first observed failure):" in text
    (run,) = (tmp_path / "logs").iterdir()
    for attempt in range(2):
        found = list((run / f"attempt_{attempt}").glob("*/error.json"))
        assert len(found) == 2
        for path in found:
            rank = path.parent.name
            message = json.loads(path.read_text())["message"]["message"]
            assert message == f"RuntimeError: of rank {rank} in attempt {attempt}"
    own = json.loads((tmp_path / "own.json").read_text())["message"]
    # A rank may be ended by the agent between its error file and its exit.
    assert "in attempt 1" in own["message"] and own["errorCode"] in (1, -15)


def test_four_ranks_of_a_million_lines_are_shown_exactly(tmp_path):
    from test_tail import check_numbered

    script = 'exec seq -f "line %.0f of rank $LOCAL_RANK" 0 999999'
    with open(tmp_path / "out", "wb") as out:
        out.write(b"of the host\n")
        out.flush()
        args = ["--nproc-per-node", "4", "--tee", "3", "--log-dir", str(tmp_path / "logs"), "--role", "w"]
        done = torchrun(*args, "--no-python", "sh", "-c", script, stdout=out)
    assert done.returncode == 0, done.stderr.decode()
    check_numbered((tmp_path / "out").read_bytes(), 4, 1_000_000)


def test_accelerate_launch_runs_on_it(tmp_path):
    (tmp_path / "work.py").write_text(
        # In one piece: all ranks write to one pipe.
        "import os\nos.write(1, f\"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}\\n\".encode())\n"
    )
    script = (
        "import sys, warnings\nwarnings.simplefilter('error', RuntimeWarning)\nimport herdsman\nassert herdsman.install()\n"
        "warnings.resetwarnings()\n"
        "from accelerate.commands.accelerate_cli import main\nsys.argv[0] = 'accelerate'\nmain()\n"
        "assert sys.modules['torch.distributed.elastic.multiprocessing'].__name__ == 'herdsman.multiprocessing'\n"
    )
    (tmp_path / "launch.py").write_text(script)
    command = [sys.executable, str(tmp_path / "launch.py"), "launch", "--multi_gpu", "--num_processes", "2"]
    command += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", str(tmp_path / "work.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n"))[-2:] == ["rank 0 of 2", "rank 1 of 2"], done.stdout + done.stderr


def test_a_torch_that_does_not_fit_is_left_alone():
    python = os.environ["HERD_LAB_DEBIAN_TORCH_PYTHON"]
    package = os.path.dirname(os.path.dirname(os.path.abspath(importlib.import_module("herdsman").__file__)))
    script = (
        f"import sys, warnings; sys.path.append({package!r}); import herdsman\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always'); assert herdsman.install() is False\n"
        "assert 'does not fit' in str(seen[0].message), seen\n"
        "import torch.distributed.elastic.multiprocessing as m; assert m.__name__ == m.__spec__.name\n"
    )
    subprocess.run([python, "-c", script], check=True, timeout=120)


def test_one_that_is_imported_already_is_left_alone():
    script = (
        "import torch.distributed.elastic.multiprocessing, herdsman, warnings\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always'); assert herdsman.install() is False\n"
        "assert 'imported before' in str(seen[0].message) and 'hint: call' in str(seen[0].message)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
