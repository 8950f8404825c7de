"""Benchmarks of the package, each beside its peer in one run: `scripts/python-bench`.

torch's figures need an interpreter with torch; without one they are left out.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

REPEATS = 7


def median(measure, repeats=REPEATS):
    return statistics.median(measure() for _ in range(repeats))


def wall(*command):
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - began) * 1000


def show(what, ours, peer, name, bound):
    print(f"{what:<58} {ours:9.1f}  {peer:9.1f} {name:<28} bound {bound}", flush=True)


def import_cost():
    bare = median(lambda: wall(sys.executable, "-c", "pass"), 15)
    ours = median(lambda: wall(sys.executable, "-c", "import herdsman.multiprocessing"), 15)
    show("import herdsman.multiprocessing over bare Python, ms", ours - bare, bare, "bare Python", "20")


def spawn_and_reap(count):
    began = time.perf_counter()
    processes = [subprocess.Popen(["true"], start_new_session=True) for _ in range(count)]
    for process in processes:
        process.wait()
    return (time.perf_counter() - began) * 1000


def workers(package, directory, count, tee=0):
    api = __import__(package, fromlist=["*"])
    specs = api.DefaultLogsSpecs(log_dir=directory, tee=api.Std(tee))
    ranks = range(count)
    began = time.perf_counter()
    context = api.start_processes("t", "true", {r: () for r in ranks}, {r: {} for r in ranks}, specs)
    result = context.wait(period=0.001)
    took = (time.perf_counter() - began) * 1000
    assert not result.is_failed()
    return took


def start_to_result(directory, has_torch):
    bare = median(lambda: spawn_and_reap(64))
    for tee in (0, 3):
        ours = median(lambda: workers("herdsman.multiprocessing", directory, 64, tee))
        what = f"64 x true, start to result{', tee' if tee else ''}, ms"
        show(what, ours, bare, "bare spawn and reap", "peer + 25" if not tee else "none")
        if has_torch:
            theirs = median(lambda: workers("torch.distributed.elastic.multiprocessing", directory, 64, tee), 3)
            show(what, ours, theirs, "torch", "")


def wait_after_exit(directory):
    import herdsman.multiprocessing as m

    def once():
        path = os.path.join(directory, "end")
        specs = m.DefaultLogsSpecs(log_dir=directory)
        script = f"import time; open({path!r}, 'w').write(repr(time.time()))"
        context = m.start_processes("t", sys.executable, {0: ("-S", "-c", script)}, {0: {}}, specs)
        context.wait()
        returned = time.time()
        return (returned - float(open(path).read())) * 1000

    # From the last line of the program: its own shut-down is in it.
    bare_script = "import time; print(repr(time.time()))"

    def bare():
        out = subprocess.run([sys.executable, "-S", "-c", bare_script], stdout=subprocess.PIPE, check=True).stdout
        return (time.time() - float(out)) * 1000

    show("wait() after a worker's last line, ms", median(once), median(bare), "subprocess.run", "peer + 5")


def idle(directory):
    import herdsman.multiprocessing as m

    specs = m.DefaultLogsSpecs(log_dir=directory, tee=m.Std.ALL)
    ranks = range(64)
    threads = threading.active_count()
    context = m.start_processes("t", "sleep", {r: ("600",) for r in ranks}, {r: {} for r in ranks}, specs)

    def cpu():
        own = sum(os.times()[:2])
        pids = [context._supervised.pid, *children(context._supervised.pid)]
        ticks = 0
        for pid in pids:
            fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return own + ticks / os.sysconf("SC_CLK_TCK")

    context.wait(1)
    before, began = cpu(), time.perf_counter()
    context.wait(5)
    share = (cpu() - before) / (time.perf_counter() - began) * 100
    more = threading.active_count() - threads
    context.close(timeout=0)
    show("idle supervision of 64 tee'd workers, % of a core", share, 1.0, "(the bound)", "1")
    show("threads of it", more, 133, "torch, as measured once", "8")


def children(pid):
    return [int(child) for child in open(f"/proc/{pid}/task/{pid}/children").read().split()]


def executor(directory):
    import herdsman

    with herdsman.Executor(backend="local", home=os.path.join(directory, "home")) as pool:
        pool.submit(int).result()

        def once():
            began = time.perf_counter()
            pool.submit(int).result()
            return (time.perf_counter() - began) * 1000

        bare = median(lambda: wall(sys.executable, "-c", "import cloudpickle"))
        show("Executor.submit(f).result(), local, ms", median(once), bare, "python -c 'import cloudpickle'", "150")


def tee(directory, has_torch):
    script = 'exec seq -f "line %.0f of rank $R" 0 999999'
    program = (
        "import sys, importlib\nm = importlib.import_module(sys.argv[1])\n"
        "c = m.start_processes('w', 'sh', {r: ('-c', sys.argv[3]) for r in range(4)}, {r: {'R': str(r)} for r in range(4)},"
        " m.DefaultLogsSpecs(log_dir=sys.argv[2], tee=m.Std.ALL))\nassert not c.wait(period=0.01).is_failed()\n"
    )

    def once(package):
        return wall(sys.executable, "-c", program, package, directory, script)

    ours = median(lambda: once("herdsman.multiprocessing"), 3)
    peer = median(lambda: once("torch.distributed.elastic.multiprocessing"), 1) if has_torch else float("nan")
    show("tee of 4 x 1 M lines, ms", ours, peer, "torch, which garbles them", "")


def main():
    has_torch = __import__("importlib.util").util.find_spec("torch") is not None
    print(f"{'':<58} {'ours':>9}  {'peer':>9}")
    import_cost()
    if has_torch:
        import torch.distributed.elastic.multiprocessing  # noqa: F401 imported before anything is measured
    with tempfile.TemporaryDirectory() as directory:
        start_to_result(directory, has_torch)
        wait_after_exit(directory)
        idle(directory)
        executor(directory)
        tee(directory, has_torch)


if __name__ == "__main__":
    main()
