"""Row 40: the processors of workers near their accelerators, from a made-up topology."""

import os

import pytest

from herdsman import _native, numa

#: Two sockets of two nodes each: nodes 0 and 1 have CPUs 0-9 and 10-13; siblings are n and n+1; caches of four.
NODES = {0: range(0, 10), 1: range(10, 14), 2: range(14, 18)}
PACKAGES = {0: 0, 1: 0, 2: 1}
DEVICES = {"0000:01:00.0": 0, "0000:02:00.0": 0, "0000:03:00.0": 0, "0000:04:00.0": 2}


@pytest.fixture
def root(tmp_path):
    def put(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"{text}\n")

    put("devices/system/node/possible", "0-2")
    for node, cpus in NODES.items():
        put(f"devices/system/node/node{node}/cpulist", f"{cpus[0]}-{cpus[-1]}")
        for cpu in cpus:
            base = f"devices/system/cpu/cpu{cpu}"
            put(f"{base}/topology/physical_package_id", PACKAGES[node])
            core = cpu - (cpu - cpus[0]) % 2
            put(f"{base}/topology/thread_siblings_list", f"{core}-{core + 1}")
            group = cpus[0] + (cpu - cpus[0]) // 4 * 4
            put(f"{base}/cache/index0/level", 1)
            put(f"{base}/cache/index0/type", "Instruction")
            put(f"{base}/cache/index1/level", 3)
            put(f"{base}/cache/index1/type", "Unified")
            put(f"{base}/cache/index1/shared_cpu_list", f"{group}-{min(group + 3, cpus[-1])}")
    for device, node in DEVICES.items():
        put(f"bus/pci/devices/{device}/numa_node", node)
    return str(tmp_path)


def cpus(root, mode, rank, allowed=range(18), devices=tuple(DEVICES)):
    return _native.numa_cpus(root, mode, list(devices), rank, list(allowed))


def test_row_40_node(root):
    assert cpus(root, "node", 0) == list(range(10))
    assert cpus(root, "node", 3, allowed=[0, 15, 17]) == [15, 17]


def test_row_40_socket(root):
    assert cpus(root, "socket", 1) == list(range(14))
    assert cpus(root, "socket", 3) == list(range(14, 18))


def test_row_40_exclusive_divides_unevenly(root):
    # Five cores for three devices: two, two, one.
    assert [cpus(root, "exclusive", rank) for rank in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    with pytest.raises(RuntimeError, match="not one for each"):
        cpus(root, "exclusive", 0, allowed=[0, 1, 2, 3])


def test_row_40_core_complex_prefers_large_ones(root):
    assert [cpus(root, "core-complex", rank) for rank in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    # With fewer usable ones in the first it comes later.
    allowed = [1, 4, 5, 6, 7, 8, 9]
    assert [cpus(root, "core-complex", rank, allowed) for rank in range(3)] == [[4, 5, 6, 7], [8, 9], [1]]


def test_row_40_faults(root):
    with pytest.raises(RuntimeError, match="accelerator"):
        cpus(root, "node", 0, devices=())
    with pytest.raises(RuntimeError):
        cpus(root, "node", 0, allowed=[17])
    with pytest.raises(ValueError):
        cpus(root, "other", 0)


def options(mode="node", falls_back=False):
    return numa.NumaOptions(affinity_mode=numa.AffinityMode(mode), should_fall_back_if_binding_fails=falls_back)


@pytest.fixture
def numactl(tmp_path, monkeypatch):
    """A stand-in that shows how it was called."""
    directory = tmp_path / "bin"
    directory.mkdir()
    (directory / "numactl").write_text('#!/bin/sh\necho "$1"; shift; exec "$@"\n')
    (directory / "numactl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


def test_row_40_a_program_runs_under_numactl(root, numactl, monkeypatch, start):
    from herdsman.multiprocessing import Std

    monkeypatch.setattr(numa, "cpus_for", lambda index, options: [0, 1, 2, 4])
    result = start("echo", [("x",)], numa_options=options(), redirects=Std.OUT).wait(60)
    assert open(result.stdouts[0]).read() == "--physcpubind=0-2,4\nx\n"


def test_row_40_a_function_is_bound(numactl, monkeypatch):
    mine = min(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    monkeypatch.setattr(numa, "cpus_for", lambda index, options: [mine])
    bound = numa._maybe_wrap_with_numa_binding(
        lambda: os.sched_getaffinity(0), device_index=0, numa_options=options()
    )
    try:
        assert bound() == {mine}
    finally:
        os.sched_setaffinity(0, before)


def test_row_40_what_cannot_be_bound(numactl, monkeypatch):
    def fail(index, options):
        raise RuntimeError("no accelerator")

    monkeypatch.setattr(numa, "cpus_for", fail)
    wrap = numa._maybe_wrap_command_args_with_numa_binding
    with pytest.raises(RuntimeError, match="no accelerator"):
        wrap(("a", "b"), device_index=0, numa_options=options())
    assert wrap(("a", "b"), device_index=0, numa_options=options(falls_back=True)) == ("a", "b")
    assert wrap(("a", "b"), device_index=0, numa_options=None) == ("a", "b")
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(RuntimeError, match="numactl"):
        wrap(("a", "b"), device_index=0, numa_options=options())


