"""Functions that run in workers."""

import os
import signal
import subprocess
import sys
import time


def add(a, b):
    return a + b


def environment(name):
    return os.environ.get(name)


def identity():
    return os.getpid(), os.getpgrp(), os.getsid(0), os.getppid()


def large(megabytes):
    return bytes(megabytes << 20)


def fail(text):
    raise ValueError(text)


def exit_with(code):
    sys.exit(code)


def bare_exit():
    sys.exit()


def vanish(code):
    os._exit(code)


def interrupt():
    raise KeyboardInterrupt


def die_of(number):
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    time.sleep(600)


def unpicklable():
    return lambda: None


def act(what):
    """One of several, by rank: a rank that fails while others wait."""
    kind, *rest = what
    if kind == "sleep":
        time.sleep(600)
    return {"fail": fail, "value": lambda value: value}[kind](*rest)


def ignore_term_and_sleep(path):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    write_pid(path)
    time.sleep(600)


def write_pid(path, pid=None):
    with open(path, "w") as file:
        file.write(f"{os.getpid() if pid is None else pid}\n")


def with_grandchildren(directory):
    """A worker with a child of its own, one in another session, and one whose parent has ended."""
    child = subprocess.Popen(["sleep", "600"])
    write_pid(os.path.join(directory, "child"), child.pid)
    daemon = subprocess.Popen(["sleep", "600"], start_new_session=True)
    write_pid(os.path.join(directory, "daemon"), daemon.pid)
    orphan = "import os, subprocess; p = subprocess.Popen(['sleep', '600']); open(os.sys.argv[1], 'w').write(f'{p.pid}\\n')"
    subprocess.run([sys.executable, "-c", orphan, os.path.join(directory, "orphan")], check=True)
    write_pid(os.path.join(directory, "worker"))
    time.sleep(600)


def fork_holding_everything(path):
    """Leaves a child that holds all of the worker's descriptors open."""
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    write_pid(path, pid)
    return "left"


def print_everywhere():
    import ctypes

    print("of python")
    ctypes.CDLL(None).printf(b"of c\n")
    os.system("echo of a child")
    print("to stderr", file=sys.stderr)


def replace_stdout():
    print("before")
    sys.stdout = open(os.devnull, "w")
    print("hidden")
    return "done"


def write_pid_and_sleep(path):
    write_pid(path)
    time.sleep(600)


def write_pid_and_print(path):
    write_pid(path)
    while True:
        print("line")


def print_and_return():
    for _ in range(100):
        print("words", flush=True)


class Trap:
    """Cannot be unpickled."""

    def __reduce__(self):
        return spring, ()


def spring():
    raise RuntimeError("trap")


def return_a_trap():
    return Trap()


def start_and_leave(directory, method):
    """Starts workers and returns while they run."""
    from conftest import number_in

    from herdsman.multiprocessing import DefaultLogsSpecs, Std, start_processes

    specs = DefaultLogsSpecs(os.path.join(directory, "logs"), tee=Std.OUT)
    script = ("-c", 'echo $$ > "$0"; exec sleep 600', os.path.join(directory, "program"))
    start_processes("inner", "sh", {0: script}, {0: {}}, specs)
    path = os.path.join(directory, "function")
    start_processes("inner", write_pid_and_sleep, {0: (path,)}, {0: {}}, specs, start_method=method)
    for name in ("program", "function"):
        while not number_in(os.path.join(directory, name)):
            time.sleep(0.01)
    return "left"


def hold(path):
    """Lasts until a file is there."""
    import time

    while not os.path.exists(path):
        time.sleep(0.01)
