"""What `pip install` of the wheel has put where, and that a checkout installs as well."""

import importlib.metadata
import os
import subprocess
import sys

import pytest

import herdsman
import herdsman._binaries

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPTS = ("herd", "herd-node", "herdrun")


def test_the_package_and_its_programs_are_of_one_version():
    bin_directory = os.path.dirname(sys.executable)
    version = herdsman.__version__
    assert importlib.metadata.version("herdsman") == version
    for name in SCRIPTS:
        assert os.access(os.path.join(bin_directory, name), os.X_OK), name
    told = subprocess.run([os.path.join(bin_directory, "herd"), "--version"], capture_output=True, text=True, check=True)
    assert version in told.stdout
    # What the package starts is what was installed with it.
    assert os.path.dirname(herdsman._binaries.herd_node()) == bin_directory


def test_herdrun_launches():
    program = os.path.join(os.path.dirname(sys.executable), "herdrun")
    done = subprocess.run([program, "--no-python", "--nproc-per-node", "2", "echo", "words"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "words\nwords\n", done.stderr


def test_types_are_shipped():
    package = os.path.dirname(herdsman.__file__)
    assert os.path.exists(os.path.join(package, "py.typed"))
    for stub in ("__init__.pyi", "multiprocessing/__init__.pyi", "_native.pyi"):
        assert os.path.exists(os.path.join(package, stub)), stub


USE = """
import os, sys
import herdsman.multiprocessing as m
assert os.path.commonpath([m.__file__, sys.prefix]) == sys.prefix
context = m.start_processes("t", "true", {0: ()}, {0: {}}, m.DefaultLogsSpecs("/dev/null"))
assert not context.wait().is_failed()
"""


@pytest.mark.parametrize("what", ["wheel", pytest.param("checkout", marks=pytest.mark.slow)])
def test_a_bare_environment_needs_nothing_else(tmp_path, what):
    """`pip install` of the wheel, or of a checkout, for which pip fetches the build backend and cargo has built the rest."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    pip = [os.environ["HERDSMAN_TEST_PYTHON"], "-m", "pip", "--disable-pip-version-check", "--python", f"{venv}/bin/python"]
    source = os.environ["HERDSMAN_TEST_WHEEL"] if what == "wheel" else ROOT
    subprocess.run([*pip, "install", "--quiet", source], check=True, cwd=tmp_path)
    subprocess.run([venv / "bin" / "python", "-I", "-c", USE], check=True, cwd=tmp_path)
    subprocess.run([venv / "bin" / "herd", "--version"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([venv / "bin" / "herdrun", "--no-python", "true"], check=True)
    listed = subprocess.run([*pip, "list", "--format", "freeze"], check=True, capture_output=True, text=True).stdout
    assert listed.split() == [f"herdsman=={herdsman.__version__}"]


def test_programs_are_named_by_variables(monkeypatch, tmp_path):
    monkeypatch.setenv("HERDSMAN_HERD", "/elsewhere/herd")
    assert herdsman._binaries.herd() == "/elsewhere/herd"
    monkeypatch.delenv("HERDSMAN_HERD")
    monkeypatch.setattr(herdsman._binaries, "_directories", lambda: [str(tmp_path)])
    with pytest.raises(FileNotFoundError, match="hint: install the package again"):
        herdsman._binaries.find("herd", "HERDSMAN_HERD")
