# SPDX-License-Identifier: Apache-2.0
"""The examples do what they say, on each loop: their exit status is 0 only then."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("[!_]*.py"))
# The server of web_app runs on asyncio's loops; ocr is the tutorial, with asyncio.gather.
LOOPS = {"web_app": ("asyncio", "uvloop"), "ocr": ("",)}
LESS = {"ocr_service": ("--pages", "2")}


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / f"{name}.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("name", "loop"), [(name, loop) for name in EXAMPLES for loop in LOOPS.get(name, ("asyncio", "uvloop", "trio"))]
)
def test_example(name: str, loop: str) -> None:
    done = run(name, *(["--loop", loop] if loop else []), *LESS.get(name, ()))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert done.stdout.strip()


def test_a_loop_that_an_example_does_not_have_is_refused() -> None:
    done = run("web_app", "--loop", "trio")
    assert done.returncode == 2
    assert "invalid choice: 'trio'" in done.stderr


def test_an_example_that_does_not_work_out_says_so(tmp_path: Path) -> None:
    program = "from _loops import run\nasync def main(): return False\nrun(main, 'A failure.')\n"
    (tmp_path / "_loops.py").write_bytes((ROOT / "examples" / "_loops.py").read_bytes())
    (tmp_path / "fails.py").write_text(program, encoding="utf-8")
    done = subprocess.run([sys.executable, str(tmp_path / "fails.py")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "not what should have come out" in done.stderr


def test_the_page_lists_every_example() -> None:
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    table = page.split("\n## ", maxsplit=1)[0]
    assert sorted(re.findall(r"^\| `(\w+)\.py` \|", table, re.MULTILINE)) == EXAMPLES
