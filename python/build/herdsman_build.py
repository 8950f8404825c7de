"""Builds the wheel: maturin's build backend, which builds the native module, after the programs that the wheel has as its
scripts were built by cargo.

HERDSMAN_PROFILE names another profile of cargo than `release`; tests build with `dev`.
"""

import os
import shutil
import subprocess
from pathlib import Path

import maturin
from maturin import build_sdist, get_requires_for_build_sdist, get_requires_for_build_wheel  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
PROFILE = os.environ.get("HERDSMAN_PROFILE", "release")
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


SCRIPTS = ROOT / "target" / "python" / "herdsman.data" / "scripts"


def _stage_programs():
    # Tests build the whole workspace, and cargo unites the features of all that it is asked for: as it has built it already.
    what = ["--workspace"] if PROFILE == "dev" else ["-p", "herd", "-p", "herd-node"]
    command = ["cargo", "build", "--locked", "--profile", PROFILE, *what, "--bins"]
    subprocess.run(command, cwd=ROOT, check=True)
    built = TARGET / ("debug" if PROFILE == "dev" else PROFILE)
    shutil.rmtree(SCRIPTS, ignore_errors=True)
    SCRIPTS.mkdir(parents=True)
    for name in ("herd", "herd-node"):
        shutil.copy2(built / name, SCRIPTS / name)
        if PROFILE == "dev":
            # Its tables of lines are most of its size, and the wheel is only for tests.
            subprocess.run(["strip", "--strip-debug", SCRIPTS / name], check=True)
    # The same program, which goes by its name.
    shutil.copy2(SCRIPTS / "herd-node", SCRIPTS / "herdrun")


def _with_profile(config_settings):
    settings = dict(config_settings or {})
    settings.setdefault("build-args", f"--profile {PROFILE}")
    return settings


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _stage_programs()
    return maturin.build_wheel(wheel_directory, _with_profile(config_settings), metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _stage_programs()
    return maturin.build_editable(wheel_directory, _with_profile(config_settings), metadata_directory)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    # It is asked for before anything is built, and wants the directory to be there.
    SCRIPTS.mkdir(parents=True, exist_ok=True)
    return maturin.prepare_metadata_for_build_wheel(metadata_directory, _with_profile(config_settings))


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel
get_requires_for_build_editable = get_requires_for_build_wheel
