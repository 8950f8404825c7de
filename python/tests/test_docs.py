"""Every example of docs/python.md runs."""

import os
import re
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TEXT = open(os.path.join(ROOT, "docs", "python.md")).read()
EXAMPLES = re.findall(r"(<!-- torch -->\n)?```(python|sh)\n(.*?)```", TEXT, re.DOTALL)


def example(number, needs_torch, language, source):
    marks = [pytest.mark.torch] if needs_torch else []
    return pytest.param(language, source, marks=marks, id=f"{number}-{language}")


@pytest.mark.parametrize(
    "language, source", [example(number, *found) for number, found in enumerate(EXAMPLES)]
)
def test_an_example_runs(language, source, tmp_path):
    assert len(EXAMPLES) == TEXT.count("```") // 2
    path = tmp_path / f"example.{language}"
    path.write_text(source)
    command = [sys.executable, str(path)] if language == "python" else ["sh", "-e", str(path)]
    env = {**os.environ, "HERD_HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path)}
    env["HERD_LEASE_DIR"] = str(tmp_path / "leases")
    env["PATH"] = f"{os.path.dirname(sys.executable)}:{env['PATH']}"
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
