"""Rows 9 to 12: where workers write, and what of it is shown."""

import inspect
import os
import sys

import pytest

from herdsman.multiprocessing import DefaultLogsSpecs, LogsDest, ProcessFailure, RunProcsResult, Std

PRINT = ("-c", "echo out; echo err >&2")


def tree(root):
    return sorted(os.path.relpath(os.path.join(d, f), root) for d, _, files in os.walk(root) for f in files)


def attempt_of(context, rank=0):
    return os.path.dirname(os.path.dirname(context.error_files[rank]))


def test_row_7_only_what_was_asked_for_is_a_file(start):
    context = start("sh", [PRINT, PRINT], tee=Std.OUT)
    context.wait(60)
    assert tree(attempt_of(context)) == ["0/stdout.log", "1/stdout.log"]


def test_row_8_each_attempt_has_a_directory_which_is_made_anew(start, specs):
    logs = specs(redirects=Std.OUT)
    seen = []
    for attempt in ("0", "1", "1"):
        envs = {0: {"TORCHELASTIC_RESTART_COUNT": attempt, "TORCHELASTIC_RUN_ID": "run"}}
        context = start("sh", [PRINT], envs=envs, logs_specs=logs)
        context.wait(60)
        seen.append(attempt_of(context))
    assert [os.path.basename(path) for path in seen] == ["attempt_0", "attempt_1", "attempt_1"]
    assert len({os.path.dirname(path) for path in seen}) == 1
    run = os.path.dirname(seen[0])
    assert os.path.basename(run).startswith("run_") and os.stat(run).st_mode & 0o777 == 0o700


def test_row_9_a_log_directory_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="log_dir: .*file is a file"):
        DefaultLogsSpecs(log_dir=str(tmp_path / "file"))
    made = tmp_path / "a" / "b"
    DefaultLogsSpecs(log_dir=str(made))
    assert made.is_dir()


def test_without_a_log_directory_there_is_one_that_can_be_removed():
    specs = DefaultLogsSpecs()
    assert os.path.basename(specs.root_log_dir).startswith("torchelastic_")
    specs.cleanup()
    assert not os.path.exists(specs.root_log_dir)


def test_row_10_no_files_below_dev_null(start, capfd):
    envs = {0: {}}
    specs = DefaultLogsSpecs(log_dir=os.devnull, redirects=Std.ALL)
    context = start("sh", [PRINT], envs=envs, logs_specs=specs)
    assert not context.wait(60).is_failed()
    assert envs[0]["TORCHELASTIC_ERROR_FILE"] == "" and context.stdouts == {0: ""}
    assert capfd.readouterr() == ("out\n", "err\n")
    with pytest.raises(NotADirectoryError):
        start("true", [()], logs_specs=specs, duplicate_stdout_filters=["x"])


def test_row_11_other_ranks_are_silent(start, capfd):
    args = [("-c", f"echo out{rank}") for rank in range(3)]
    assert not start("sh", args, local_ranks_filter={1}).wait(60).is_failed()
    assert capfd.readouterr().out == "out1\n"


def test_row_11_files_of_silent_ranks_are_whole(start, capfd):
    args = [("-c", f"echo out{rank}") for rank in range(3)]
    result = start("sh", args, tee=Std.OUT, local_ranks_filter={1}).wait(60)
    assert capfd.readouterr().out == "[t1]:out1\n"
    assert [open(result.stdouts[rank]).read() for rank in range(3)] == ["out0\n", "out1\n", "out2\n"]


def test_row_12_lines_with_any_of_the_texts_are_filtered(start):
    lines = "an apple\\nan orange\\nled\\nzed\\n"
    args = [("-c", f"printf '{lines}'"), ("-c", f"printf '{lines}' >&2")]
    context = start(
        "sh", args, tee=Std.ALL, duplicate_stdout_filters=["app", "led"], duplicate_stderr_filters=["zed"]
    )
    context.wait(60)
    filtered = [open(os.path.join(attempt_of(context), f"filtered_{name}.log")).read() for name in ("stdout", "stderr")]
    assert filtered == ["[t0]:an apple\n[t0]:led\n", "[t1]:zed\n"]


def test_specifications_are_values(tmp_path):
    path = str(tmp_path)
    assert DefaultLogsSpecs(path, Std.OUT) == DefaultLogsSpecs(path, Std.OUT) != DefaultLogsSpecs(path)
    assert repr(DefaultLogsSpecs(path)).startswith(f"DefaultLogsSpecs(root_log_dir={path}, redirects=")


def test_records_are_dataclasses():
    import dataclasses

    dest = LogsDest(stdouts={0: "a"})
    assert dataclasses.asdict(dest)["stdouts"] == {0: "a"}
    assert dataclasses.replace(dest, filtered_stdout="f") == LogsDest(stdouts={0: "a"}, filtered_stdout="f")
    assert dataclasses.is_dataclass(LogsDest)
    assert "stdouts: dict[int, str] = <factory>" in str(inspect.signature(LogsDest))


def test_records_can_be_extended_and_inspected(tmp_path):
    import dataclasses
    import typing

    @dataclasses.dataclass
    class Result(RunProcsResult):
        extra: int = 3

    @dataclasses.dataclass
    class Failure(ProcessFailure):
        extra: int = 3

    assert (Result().failures, Result().extra) == ({}, 3) and not Result().is_failed()
    failure = Failure(0, 1, -9, str(tmp_path / "none"))
    assert "SIGKILL" in failure.message and "extra=3" in repr(failure)
    for kind in (Result, Failure, LogsDest):
        assert list(typing.get_type_hints(kind)) == [field.name for field in dataclasses.fields(kind)]
    assert [field.type for field in dataclasses.fields(Failure)][:2] == [int, int]
    if sys.version_info >= (3, 10):
        assert LogsDest.__match_args__[:2] == ("stdouts", "stderrs")
        assert Failure.__match_args__ == ("local_rank", "pid", "exitcode", "error_file", "extra")


LOGGERS = """
import logging, sys
import herdsman.multiprocessing as m
from herdsman.multiprocessing import api, errors, redirects, tail_log
from herdsman.multiprocessing.errors import error_handler
if sys.argv[2] == "silent":
    logging.getLogger("herdsman.multiprocessing.api").disabled = True
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s", stream=sys.stdout)
m.start_processes("t", "sh", {0: ("-c", "exit 3"), 1: ("-c", "sleep 600")}, {0: {}, 1: {}}, m.DefaultLogsSpecs(sys.argv[1])).wait()
for module in (api, errors, redirects, tail_log, error_handler):
    assert module.logger is logging.getLogger(module.__name__) and isinstance(module.logger, logging.Logger)
"""


def test_loggers_have_the_names_of_the_modules(host, tmp_path):
    """Which are those of torch, as is the level of what is shown unless a program asks for more."""
    said = ["WARNING herdsman.multiprocessing.api", "ERROR herdsman.multiprocessing.api"]
    code, out, err = host(LOGGERS, tmp_path / "logs", "loud").end()
    assert code == 0 and out.splitlines() == said, out + err
    code, out, err = host(LOGGERS, tmp_path / "logs", "silent").end()
    assert code == 0 and out == "", out + err
    code, out, err = host(LOGGERS, tmp_path / "logs", "loud", env={"LOGLEVEL": "INFO"}).end()
    assert out.splitlines() == ["INFO herdsman.multiprocessing.api", *said]
