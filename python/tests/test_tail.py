"""Rows 13 to 18: what is shown of workers, and redirecting this process's own streams."""

import io
import os
import re
import subprocess
import sys
import threading
import time

import pytest
from conftest import DEADLINE, until

from herdsman.multiprocessing import Std
from herdsman.multiprocessing.redirects import redirect, redirect_stderr, redirect_stdout
from herdsman.multiprocessing.tail_log import TailLog

TEE = """
import sys
from herdsman.multiprocessing import DefaultLogsSpecs, Std, start_processes
count, script = int(sys.argv[2]), sys.argv[3]
specs = DefaultLogsSpecs(log_dir=sys.argv[1], tee=Std.ALL)
context = start_processes("w", "sh", {r: ("-c", script) for r in range(count)}, {r: {"R": str(r)} for r in range(count)}, specs)
sys.stdout.write("of the host\\n")
sys.exit(context.wait().is_failed())
"""


def check_numbered(data, ranks, count):
    """Every line of every rank exactly once, in its order, and nothing else."""
    lines = data.decode().splitlines()
    lines.remove("of the host")
    for rank in range(ranks):
        header = f"[w{rank}]:"
        found = [line for line in lines if line.startswith(header)]
        expected = [f"{header}line {number} of rank {rank}" for number in range(count)]
        if found != expected:
            wrong = next((pair for pair in zip(found, expected) if pair[0] != pair[1]), None)
            raise AssertionError(f"rank {rank}: {len(found)} lines of {count}, first difference {wrong}")
    assert len(lines) == ranks * count, [line for line in lines if not re.match(r"\[w[0-3]\]:line", line)][:5]


@pytest.mark.slow
@pytest.mark.parametrize("into", ["file", "pipe", "pty"])
def test_row_13_every_line_once_and_whole(host, tmp_path, into):
    count = 1_000_000
    # Both streams, so that two threads are at work.
    script = (
        f'[ $R = 3 ] && exec >&2; exec seq -f "line %.0f of rank $R" 0 {count - 1}'
    )
    if into == "file":
        with open(tmp_path / "out", "wb") as out:
            running = host(TEE, tmp_path / "logs", 4, script, stdout=out, stderr=out, text=False)
        assert running.process.wait(600) == 0
        data = (tmp_path / "out").read_bytes()
    elif into == "pipe":
        running = host(TEE, tmp_path / "logs", 4, script, stderr=subprocess.STDOUT, text=False)
        data, _ = running.process.communicate(timeout=600)
        assert running.process.returncode == 0
    else:
        parent, child = os.openpty()
        running = host(TEE, tmp_path / "logs", 4, script, stdout=child, stderr=child, text=False)
        os.close(child)
        pieces = []
        while True:
            try:
                piece = os.read(parent, 1 << 16)
            except OSError:
                break  # the other side has closed
            if not piece:
                break
            pieces.append(piece)
        os.close(parent)
        assert running.process.wait(600) == 0
        data = b"".join(pieces).replace(b"\r\n", b"\n")
    check_numbered(data, 4, count)


def test_row_14_a_line_comes_through_a_pipe_at_once(host, tmp_path):
    # The worker shows each line when it is written, so none can come late. Both ends are open for reading and writing, so
    # that neither waits for the other or sees its end.
    script = 'exec 3<>"$D/fifo"; while read line <&3; do echo "$line"; [ "$line" = end ] && exit 0; done'
    os.mkfifo(tmp_path / "fifo")
    running = host(TEE, tmp_path / "logs", 1, script, env={"D": str(tmp_path)})
    delays = []
    fifo = os.open(tmp_path / "fifo", os.O_RDWR)
    for word in ["one", "two", "three", "end"]:
        os.write(fifo, f"{word}\n".encode())
        written = time.monotonic()
        shown = running.line()
        if shown == "of the host":
            shown = running.line()
        assert shown == f"[w0]:{word}"
        # The first one has the start of the worker in it.
        if word != "one":
            delays.append(time.monotonic() - written)
    os.close(fifo)
    assert running.end()[0] == 0
    # 0.3 s on a machine that is idle.
    assert max(delays) < 1.5, delays


def test_row_15_part_of_a_line_waits_for_the_rest(tmp_path):
    path, dst = tmp_path / "log", io.StringIO()
    path.write_text("abc")
    tail = TailLog("t", {0: str(path)}, dst).start()
    held = time.monotonic()
    with open(path, "a") as file:
        file.write("def\nghi")
    until(lambda: "def" in dst.getvalue())
    assert dst.getvalue().startswith("[t0]:abcdef\n") or time.monotonic() - held > 1
    # What has no end is shown in time all the same.
    until(lambda: dst.getvalue().endswith("[t0]:ghi\n"), seconds=DEADLINE)
    tail.stop()


def test_row_16_a_last_line_without_an_end_appears(start, capfd):
    args = [("-c", f"printf 'all of {rank}\nlast of {rank}'") for rank in range(2)]
    start("sh", args, tee=Std.OUT).wait(60)
    expected = [f"[t{rank}]:{word} of {rank}" for rank in range(2) for word in ("all", "last")]
    assert sorted(capfd.readouterr().out.splitlines()) == sorted(expected)


def test_row_17_a_file_that_comes_late_is_shown_whole(tmp_path):
    path, dst = tmp_path / "late", io.StringIO()
    tail = TailLog("t", {3: str(path)}, dst, log_line_prefixes={3: "(three) "}).start()
    path.write_text("a\nb\n")
    until(lambda: dst.getvalue() == "(three) a\n(three) b\n")
    tail.stop()
    assert tail.stopped()
    tail.stop()


def test_a_file_that_never_comes_ends_with_stop(tmp_path):
    tail = TailLog("t", {0: str(tmp_path / "never")}, io.StringIO()).start()
    tail.stop()
    assert tail.stopped()


def test_nothing_that_was_written_before_stop_is_lost(tmp_path):
    for number in range(50):
        path, dst = tmp_path / f"log{number}", io.StringIO()
        tail = TailLog("", {0: str(path)}, dst, interval_sec=0.05).start()
        path.write_text("x\n" * number)
        tail.stop()
        assert dst.getvalue() == "[0]:x\n" * number


def test_odd_bytes_and_ends_of_lines(tmp_path):
    path, dst = tmp_path / "log", io.StringIO()
    path.write_bytes(b"a\r\nb\rc\n\n\xff\xe4\xb8\xad\n" + b"x" * 200_000 + b"\n")
    tail = TailLog("", {0: str(path)}, dst).start()
    tail.stop()
    lines = dst.getvalue().split("\n")
    assert lines[:5] == ["[0]:a", "[0]:b", "[0]:c", "[0]:", "[0]:\ufffd中"]
    assert sum(line.count("x") for line in lines) == 200_000


def test_a_character_is_not_cut(tmp_path):
    path, dst = tmp_path / "log", io.StringIO()
    tail = TailLog("", {0: str(path)}, dst).start()
    whole = "中".encode()
    path.write_bytes(b"a" + whole[:2])
    until(lambda: dst.getvalue() == "[0]:a\n")
    with open(path, "ab") as file:
        file.write(whole[2:] + b"\n")
    tail.stop()
    assert dst.getvalue() == "[0]:a\n[0]:中\n"


def test_a_filter_sees_lines_without_their_headers(tmp_path):
    path, dst = tmp_path / "log", io.StringIO()
    path.write_text("keep\ndrop\n")
    seen = []
    tail = TailLog("t", {0: str(path)}, dst, log_line_filter=lambda line: seen.append(line) or "keep" in line).start()
    tail.stop()
    assert dst.getvalue() == "[t0]:keep\n" and seen == ["keep\n", "drop\n"]


def test_a_destination_that_fails_is_logged(tmp_path, caplog):
    path = tmp_path / "log"
    path.write_text("a\n")
    closed = io.StringIO()
    closed.close()
    TailLog("t", {0: str(path)}, closed).start().stop()
    assert "error in log tailer for t" in caplog.text


def test_few_threads_show_many_workers(start):
    before = threading.active_count()
    context = start("sleep", [("600",)] * 64, tee=Std.ALL)
    assert threading.active_count() - before <= 8
    context.close(timeout=0)
    assert threading.active_count() == before


REDIRECT = """
import ctypes, os, sys
from herdsman.multiprocessing.redirects import redirect_stdout
print("before")
with redirect_stdout(sys.argv[1]):
    print("of python")
    ctypes.CDLL(None).printf(b"of c\\n")
    os.system("echo of a child")
print("after")
ctypes.CDLL(None).printf(b"c after\\n")
"""


def test_row_18_everything_that_is_printed_is_redirected(host, tmp_path):
    code, out, _ = host(REDIRECT, tmp_path / "file").end()
    assert code == 0
    assert sorted((tmp_path / "file").read_text().splitlines()) == ["of a child", "of c", "of python"]
    assert sorted(out.splitlines()) == ["after", "before", "c after"]


def test_row_18_faults_of_the_caller(tmp_path):
    with pytest.raises(ValueError, match="unknown standard stream <stdin>, must be one of"):
        with redirect("stdin", str(tmp_path / "x")):
            pass
    with pytest.raises(FileNotFoundError):
        with redirect_stderr(str(tmp_path / "no" / "x")):
            pass
    with pytest.raises(KeyError):
        with redirect_stdout(str(tmp_path / "x")):
            raise KeyError
    print("restored", file=sys.stderr)
