# SPDX-License-Identifier: Apache-2.0
"""The command line, as a process."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

import aioascend
from aioascend import cli
from aioascend._words import counted
from aioascend.testing import Simulator
from tools.conftest import RunPython


@pytest.fixture
def command(run_python: RunPython) -> RunPython:
    return lambda *arguments, **environment: run_python("-m", "aioascend", *arguments, **environment)


def test_version(command: RunPython) -> None:
    done = command("--version")
    assert (done.returncode, done.stdout) == (0, f"aioascend {aioascend.__version__}\n")


def test_without_a_command_it_says_what_there_is(command: RunPython) -> None:
    done = command()
    assert done.returncode == 2
    assert "COMMAND" in done.stderr
    assert {"demo", "doctor", "backend"} <= set(command("--help").stdout.split())


def test_backend_tells_which_library_runs_and_why(command: RunPython, sim: Simulator) -> None:
    done = command("backend")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert f"tried: {sim.path}: loaded" in lines
    assert "kind: sim" in lines
    assert f"path: {sim.path}" in lines


def test_backend_as_json(command: RunPython, sim: Simulator) -> None:
    done = command("backend", "--json", AIOASCEND_SIM_DEVICES="3")
    assert done.returncode == 0, done.stderr
    info = json.loads(done.stdout)
    assert info["kind"] == "sim"
    assert info["devices"] == 3
    assert info["attempts"][-1] == [sim.path, "loaded"]
    assert info["capabilities"]["launch_callback"] is True


def test_a_library_that_cannot_be_loaded_is_one_message(command: RunPython, tmp_path: Path) -> None:
    path = tmp_path / "libascendcl.so"
    path.write_text("not a library", encoding="utf-8")
    done = command("backend", AIOASCEND_LIBRARY=str(path))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"aioascend: AIOASCEND_LIBRARY={path} names no library that can be used")
    assert str(path) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_variable_is_one_message(command: RunPython) -> None:
    done = command("backend", AIOASCEND_BACKEND="gpu")
    assert done.returncode == 1
    assert done.stderr == "aioascend: AIOASCEND_BACKEND must be 'auto', 'cann' or 'sim', not 'gpu'\n"


def test_demo_without_its_packages_names_the_extra(command: RunPython, tmp_path: Path) -> None:
    # A package of this name that cannot be imported stands for one that is not installed.
    (tmp_path / "rich.py").write_text("raise ModuleNotFoundError(\"No module named 'rich'\")\n", encoding="utf-8")
    search_path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = command("demo", PYTHONPATH=search_path)
    assert done.returncode == 2
    assert 'pip install "aioascend[demo]"' in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["demo", "--help"], ["doctor", "--help"], ["backend", "--help"]])
def test_every_command_explains_itself(command: RunPython, arguments: list[str]) -> None:
    done = command(*arguments)
    assert done.returncode == 0
    assert f"aioascend {arguments[0]}" in done.stdout


@pytest.mark.parametrize("value", ["-1", "first", "1.5", str(2**31)])
def test_a_device_that_is_none_is_refused(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        cli.main(["demo", "--device", value])
    assert refused.value.code == 2
    expected = f"argument --device: must be the index of a device, 0 or above, not '{value}'\n"
    assert capsys.readouterr().err.endswith(expected)


@pytest.mark.parametrize(("count", "text"), [(0, "0 inputs"), (1, "1 input"), (2, "2 inputs")])
def test_counted(count: int, text: str) -> None:
    assert counted(count, "input") == text


INTERRUPTED = """
import signal, sys
from aioascend import cli, doctor

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job may have inherited that it is ignored

def interrupted(args):
    signal.raise_signal(signal.SIGINT)  # becomes KeyboardInterrupt in here

doctor.main = interrupted
sys.exit(cli.main(["doctor"]))
"""


def test_ctrl_c_ends_quietly(run_python: RunPython) -> None:
    done = run_python("-c", INTERRUPTED)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, "", "")
