"""Rows 1 to 6 and 25 of the launcher's acceptance table, and D1: what is started, and with what."""

import os
from enum import IntFlag

import pytest
import worker_functions
from conftest import alive, number_in, until

from herdsman.multiprocessing import Std, start_processes, to_map


@pytest.mark.parametrize("entrypoint", ["true", worker_functions.add])
@pytest.mark.parametrize(
    "args, envs, what",
    [({0: (), 2: ()}, {0: {}, 1: {}}, "args"), ({0: (), 1: ()}, {0: {}}, "envs"), ({0: ()}, {0: {}, 1: {}}, "envs")],
)
def test_row_1_ranks_must_be_complete(entrypoint, args, envs, what, specs):
    with pytest.raises(RuntimeError, match=f"^{what}, local rank mapping mismatch, expected: .*, actual: "):
        start_processes("t", entrypoint, args, envs, specs())


@pytest.mark.parametrize("entrypoint", ["true", worker_functions.add])
def test_row_2_no_workers_are_an_immediate_success(entrypoint, start):
    result = start(entrypoint, {}).wait(0)
    assert not result.is_failed() and result.return_values == {}


def test_row_3_none_is_left_when_one_cannot_start(start, tmp_path):
    script = 'echo $$ > "$0"; exec sleep 600'
    with pytest.raises(ValueError, match="embedded null byte"):
        start("sh", [("-c", script, str(tmp_path / "pid")), ("-c", "\0")])
    assert not (tmp_path / "pid").exists()


def test_row_3_a_worker_that_started_is_ended_when_a_later_one_cannot(start, tmp_path):
    # Rank 1 finds no program in its own PATH, so rank 0 has started by then.
    script = 'echo $$ > "$0"; exec sleep 600'
    args = [("-c", script, str(tmp_path / "pid")), ()]
    with pytest.raises(FileNotFoundError):
        start("sh", args, envs={0: {}, 1: {"PATH": "/nonexistent"}})
    pid = number_in(tmp_path / "pid")
    assert pid is None or not alive(pid)


def test_what_cannot_start_raises_what_popen_raises(start, tmp_path):
    with pytest.raises(FileNotFoundError) as raised:
        start("no-such-program-anywhere", [()])
    assert raised.value.filename == "no-such-program-anywhere"
    plain = tmp_path / "plain"
    plain.write_text("x")
    with pytest.raises(PermissionError):
        start(str(plain), [()])
    with pytest.raises(TypeError, match="expected str, bytes or os.PathLike object, not int"):
        start("true", [()], envs={0: {"A": 1}})
    with pytest.raises(ValueError, match="illegal environment variable name"):
        start("true", [()], envs={0: {"A=B": "1"}})


def test_row_4_arguments_become_text_one_by_one(start):
    context = start("echo", [(1, 2), ([1, 2],), "ab"], redirects=Std.OUT)
    result = context.wait(60)
    assert [open(result.stdouts[rank]).read() for rank in range(3)] == ["1 2\n", "[1, 2]\n", "a b\n"]


def test_row_5_variables_are_laid_over_those_of_the_host(start, monkeypatch):
    monkeypatch.setenv("OF_THE_HOST", "h")
    monkeypatch.setenv("OF_BOTH", "h")
    monkeypatch.setenv("ODD", os.fsdecode(b"\xff\xfe"))
    envs = {0: {"OF_BOTH": "0", "MINE": "a b"}, 1: {"OF_BOTH": "1"}}
    result = start("env", [("-0",), ("-0",)], envs=envs, redirects=Std.OUT).wait(60)
    found = []
    for rank in range(2):
        entries = open(result.stdouts[rank], "rb").read().rstrip(b"\0").split(b"\0")
        found.append(dict(entry.split(b"=", 1) for entry in entries))
    assert [env[b"OF_THE_HOST"] for env in found] == [b"h", b"h"]
    assert [env[b"OF_BOTH"] for env in found] == [b"0", b"1"]
    assert found[0][b"MINE"] == b"a b" and b"MINE" not in found[1]
    assert found[0][b"ODD"] == b"\xff\xfe"
    assert found[0][b"TORCHELASTIC_ERROR_FILE"] == os.fsencode(envs[0]["TORCHELASTIC_ERROR_FILE"])


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_row_5_functions_see_their_variables(start, method):
    context = start(
        worker_functions.environment, [("MINE",), ("MINE",)], envs={0: {"MINE": "0"}, 1: {}}, start_method=method
    )
    assert context.wait(60).return_values == {0: "0", 1: None}


GOOD = {
    "0": Std.NONE,
    "3": Std.ALL,
    "0:3,1:0": {0: Std.ALL, 1: Std.NONE},
    "10:1": {10: Std.OUT},
    "0:1,0:2": {0: Std.ERR},
}


@pytest.mark.parametrize("text", GOOD)
def test_row_6_streams_are_read(text):
    assert Std.from_str(text) == GOOD[text]


@pytest.mark.parametrize("text", ["", "4", "11", "0:1,", "0:4", "a:1", "0:1,2", "-1:0", "0:1:2", "0:", "²:1"])
def test_row_6_other_texts_are_refused(text):
    with pytest.raises(ValueError, match="does not match"):
        Std.from_str(text)


def test_row_6_maps_have_every_rank():
    assert to_map(Std.OUT, 2) == {0: Std.OUT, 1: Std.OUT}
    assert to_map({1: Std.OUT}, 2) == {0: Std.NONE, 1: Std.OUT}
    with pytest.raises(AttributeError):
        to_map(3, 2)


def test_a_std_of_torch_will_do():
    class TorchStd(IntFlag):
        OUT = 1

    TorchStd.__name__ = "Std"
    assert to_map(TorchStd.OUT, 1) == {0: Std.OUT}


def test_row_25_a_program_leads_its_session(start):
    context = start("sleep", [("600",)])
    pid = context.pids()[0]
    until(lambda: alive(pid) and os.getsid(pid) == os.getpgid(pid) == pid)


def test_a_second_start_is_refused(start):
    for context in (start("true", [()]), start(worker_functions.add, [(1, 2)], start_method="fork")):
        with pytest.raises(ValueError, match="start method got called twice"):
            context._start()


def test_an_unknown_start_method_is_refused(start):
    with pytest.raises(ValueError):
        start(worker_functions.add, [(1, 2)], start_method="nonesuch")


def test_functions_stay_in_the_session_of_the_host(start):
    context = start(worker_functions.identity, [()], start_method="fork")
    pid, group, session, parent = context.wait(60).return_values[0]
    assert (group, session, parent) == (os.getpgrp(), os.getsid(0), os.getpid())
    assert pid == context.pids()[0] != group
