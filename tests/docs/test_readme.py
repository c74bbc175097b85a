# SPDX-License-Identifier: Apache-2.0
"""The README is true: its programs run, and the commands, extras and variables it names exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"


@dataclass(frozen=True)
class Block:
    language: str
    line: int
    text: str


def blocks(language: str) -> list[Block]:
    text = README.read_text(encoding="utf-8")
    found = [
        Block(match[1], text.count("\n", 0, match.start()) + 1, match[2])
        for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]
    assert {block.language for block in found} == {"python", "sh", "toml"}, "a block that no test looks at"
    return [block for block in found if block.language == language]


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AIOASCEND_")}
    return kept | {"AIOASCEND_BACKEND": "sim"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with what the README says that there should be, and nothing else."""
    names = [description.text.splitlines()[0].removeprefix("# ") for description in blocks("toml")]
    assert names == ["detect.toml", "classify.toml"]
    for name, description in zip(names, blocks("toml"), strict=True):
        (tmp_path / name).write_text(description.text)
    return tmp_path


def run(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


PROGRAMS = [block for block in blocks("python") if "def test_" not in block.text]
TESTS = [block for block in blocks("python") if "def test_" in block.text]
EXPECTED = {
    "boxes.shape": "(1, 100, 4) (1, 1000)\n",
    "Pipeline": "28000\n",
    "create_stream": "[0. 1. 2.]\n",
    "uvloop": "(1, 1000)\n",
    "trio": "",
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda block: f"line{block.line}")
def test_programs_print_what_they_should(program: Block, folder: Path) -> None:
    (expected,) = [output for sign, output in EXPECTED.items() if sign in program.text]
    (folder / "program.py").write_text(program.text)
    assert run(folder, "program.py") == expected


@pytest.mark.parametrize("test", TESTS, ids=lambda block: f"line{block.line}")
def test_tests_pass(test: Block, folder: Path) -> None:
    (folder / "test_it.py").write_text(test.text)
    output = run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py")
    count = len(re.findall(r"def test_", test.text))
    passed = re.search(r"(\d+) passed", output)
    assert passed is not None, output
    assert int(passed[1]) >= count  # anyio runs each on the loops that are installed
    assert "skipped" not in output


def test_every_program_is_expected_to_print_something() -> None:
    assert len(PROGRAMS) == len(EXPECTED)
    assert len(TESTS) == 1


COMMANDS = [line for block in blocks("sh") for line in block.text.splitlines()]


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("aioascend ")])
def test_commands_work(line: str, folder: Path) -> None:
    command = line.split("#")[0].split()[1:]
    assert run(folder, "-m", "aioascend", *command)


def test_make_targets_exist() -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = [line.split()[1] for line in COMMANDS if line.startswith("make ")]
    assert named
    assert set(named) <= set(targets)


def test_extras_exist() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = project.split("[project.optional-dependencies]")[1].split("\n[")[0]
    known = re.findall(r"^(\w+) = \[", extras, re.MULTILINE)
    named = re.findall(r"pip install \"\.\[([\w,]+)\]", README.read_text(encoding="utf-8"))
    assert named
    assert {extra for group in named for extra in group.split(",")} <= set(known)


def test_no_command_is_left_out() -> None:
    known = ("aioascend ", "make ", "pip install ", "source ", "export AIOASCEND_")
    assert [line for line in COMMANDS if line and not line.startswith(known)] == []


def test_environment_variables_exist() -> None:
    sources = [path for suffix in ("py", "cpp") for path in ROOT.glob(f"*a*/**/*.{suffix}")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources if "tests" not in path.parts)
    named = set(re.findall(r"AIOASCEND_\w+", README.read_text(encoding="utf-8")))
    assert named
    assert [name for name in named if f'"{name}"' not in code] == []
