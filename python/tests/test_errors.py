"""Rows 33 to 39: what failed workers say, and how it is told."""

import json
import os
import re
import socket
import sys
import time

import pytest

from herdsman.multiprocessing import ProcessFailure
from herdsman.multiprocessing.errors import ChildFailedError, ErrorHandler, get_error_handler, record


@pytest.fixture
def error_file(tmp_path, monkeypatch):
    path = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    return path


def reply(path, timestamp, text="E: why", **more):
    extra = {"py_callstack": f"Traceback\n  {text}", "timestamp": str(timestamp)}
    path.write_text(json.dumps({"message": {"message": text, "extraInfo": extra}, **more}))
    return str(path)


def test_row_33_death_by_a_signal_is_told(start):
    context = start("sh", [("-c", "kill -SEGV $$")])
    failure = context.wait(60).failures[0]
    assert failure.exitcode == -11
    assert failure.message == f"Signal 11 (SIGSEGV) received by PID {context.pids()[0]}"
    assert failure.signal_name() == "SIGSEGV" and failure.error_file == "<N/A>"
    assert abs(failure.timestamp - time.time()) < 60
    assert ProcessFailure(0, 1, -99, "").message == "Signal 99 (<N/A>) received by PID 1"


def test_row_34_the_error_file_of_record(error_file):
    @record
    def main():
        raise ValueError("why")

    with pytest.raises(ValueError):
        main()
    found = json.loads(error_file.read_text())
    assert set(found) == {"message"} and set(found["message"]) == {"message", "extraInfo"}
    assert found["message"]["message"] == "ValueError: why"
    extra = found["message"]["extraInfo"]
    assert set(extra) == {"py_callstack", "timestamp"}
    assert extra["py_callstack"].startswith("Traceback (most recent call last):\n")
    assert re.fullmatch(r"\d+", extra["timestamp"])
    assert os.listdir(error_file.parent) == ["error.json"]


def test_row_34_what_a_failure_reads(tmp_path):
    failure = ProcessFailure(1, 2, 3, reply(tmp_path / "e", 17))
    assert failure.timestamp == 17 and failure.message["message"] == "E: why"
    (tmp_path / "flat").write_text(json.dumps({"message": "words", "timestamp": 5}))
    flat = ProcessFailure(1, 2, 3, str(tmp_path / "flat"))
    assert (flat.message, flat.timestamp) == ("words", 5)
    none = ProcessFailure(1, 2, 3, str(tmp_path / "none"))
    assert none.message == "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
    assert none.error_file_data["errorTraits"] == {"category": "system_terminated_error", "retryability": "False"}
    # The original writes this into an object that all failures share.
    assert "errorTraits" not in ProcessFailure(1, 2, -9, "").error_file_data


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"message": {}}', '{"message": {"extraInfo": {"timestamp": "x"}}}'])
def test_row_35_a_broken_error_file_is_no_end_of_the_agent(start, tmp_path, content):
    with pytest.raises(Exception):
        (tmp_path / "e").write_text(content)
        ProcessFailure(0, 1, 1, str(tmp_path / "e"))
    context = start("sh", [("-c", f"printf '%s' '{content}' > $TORCHELASTIC_ERROR_FILE; exit 4")])
    failure = context.wait(60).failures[0]
    assert failure.exitcode == 4 and failure.error_file == "<N/A>"
    assert "cannot be understood" in failure.message


def test_row_36_the_earliest_time_is_the_cause(tmp_path):
    failures = {rank: ProcessFailure(rank, 1, 1, reply(tmp_path / str(rank), 100 - rank)) for rank in range(3)}
    assert ChildFailedError("t", failures).get_first_failure()[0] == 2
    ties = {rank: ProcessFailure(rank, 1, 1, reply(tmp_path / str(rank), 7)) for rank in (2, 0, 1)}
    assert ChildFailedError("t", ties).get_first_failure()[0] == 2
    with pytest.raises(AssertionError):
        ChildFailedError("t", {})


def test_row_37_the_cause_is_copied_to_the_parent(tmp_path, error_file):
    child = reply(tmp_path / "child", 5)
    error_file.write_text("of before")

    @record
    def main():
        raise ChildFailedError("t", {3: ProcessFailure(1, 2, 9, child)})

    with pytest.raises(ChildFailedError):
        main()
    expected = json.loads((tmp_path / "child").read_text())
    expected["message"]["errorCode"] = 9
    assert json.loads(error_file.read_text()) == expected


def test_row_37_nothing_is_copied_where_there_is_nothing(error_file):
    @record
    def main():
        raise ChildFailedError("t", {0: ProcessFailure(0, 2, 9, "")})

    with pytest.raises(ChildFailedError):
        main()
    assert not error_file.exists()


def test_row_38_the_report(tmp_path):
    failures = {
        4: ProcessFailure(0, 11, -15, ""),
        5: ProcessFailure(1, 12, 1, reply(tmp_path / "e", 1_700_000_000, "E: " + "w" * 70)),
    }
    lines = str(ChildFailedError("train.py", failures)).split("\n")
    when = time.strftime("%Y-%m-%d_%H:%M:%S", time.localtime(1_700_000_000))
    assert lines[0] == ""
    assert lines[1] == "=" * 60 == lines[-1]
    assert lines[2:5] == ["train.py FAILED", "-" * 60, "Failures:"]
    assert lines[5] == "[0]:"
    assert lines[6].startswith("  time      : ") and lines[7] == f"  host      : {socket.getfqdn()}"
    assert lines[8:12] == [
        "  rank      : 4 (local_rank: 0)",
        "  exitcode  : -15 (pid: 11)  (SIGTERM)",
        "  error_file: <N/A>",
        "  traceback : Signal 15 (SIGTERM) received by PID 11",
    ]
    assert lines[12:15] == ["-" * 60, "Root Cause (first observed failure):", "[1]:"]
    assert lines[15] == f"  time      : {when}"
    assert lines[17:19] == ["  rank      : 5 (local_rank: 1)", "  exitcode  : 1 (pid: 12) "]
    assert lines[20:22] == ["  traceback : Traceback", "    E: " + "w" * 70]


def test_row_38_a_single_failure():
    text = str(ChildFailedError("x", {0: ProcessFailure(0, 1, 2, "")}))
    assert "Failures:\n  <NO_OTHER_FAILURES>\n" in text


def test_row_39_good_exits_are_none_and_others_pass(error_file):
    assert record(lambda: sys.exit(0))() is None
    assert record(lambda: sys.exit())() is None
    for code in (3, "words"):
        with pytest.raises(SystemExit) as raised:
            record(lambda: sys.exit(code))()
        assert raised.value.code == code
    assert record(lambda value: value + 1)(1) == 2
    assert not error_file.exists()


def test_record_without_a_file_is_silent(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE", raising=False)
    with pytest.raises(ValueError):
        record(lambda: int("x"))()


def test_a_handler_of_ones_own(error_file):
    class Handler(ErrorHandler):
        seen = []

        def initialize(self):
            self.seen.append("initialize")

        def record_exception(self, e):
            self.seen.append((self._fn_name, type(e)))

        def record_success(self):
            self.seen.append("success")

    def main(fails):
        if fails:
            raise KeyError

    record(main, Handler())(False)
    with pytest.raises(KeyError):
        record(main, Handler())(True)
    name = main.__qualname__
    assert Handler.seen == ["initialize", "success", "initialize", (name, KeyError)]
    assert isinstance(get_error_handler(), ErrorHandler)


def test_record_alone_in_a_script(host, tmp_path):
    code, _, err = host(
        "from herdsman import record\n@record\ndef main():\n    raise RuntimeError('why')\nmain()\n",
        env={"TORCHELASTIC_ERROR_FILE": str(tmp_path / "e.json")},
    ).end()
    assert code == 1 and "RuntimeError: why" in err
    failure = ProcessFailure(0, 1, 1, str(tmp_path / "e.json"))
    assert failure.message["message"] == "RuntimeError: why"
