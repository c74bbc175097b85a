# SPDX-License-Identifier: Apache-2.0
"""`aioascend bench` itself: exit statuses, what it prints and writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aioascend import cli
from aioascend.bench import command, plot, report
from aioascend.bench.results import Goal, Part, Row
from aioascend.bench.scenarios import NAMES
from aioascend.bench.settings import Settings, UnavailableError

PARAMETERS: dict[str, object] = {"coroutines": 64, "placement": "two"}
Replace = Callable[..., None]


def rows(factor: float = 1.0) -> list[Row]:
    return [
        Row("single", "floor", "-", PARAMETERS, "us/op", 1.0, 0.1, 1.0),
        Row("single", "aioascend", "asyncio", PARAMETERS, "us/op", 2.0 * factor, 0.1, 2.0, {"to_floor": 2.0}),
        Row("single", "pyacl", "asyncio", PARAMETERS, "us/op", 30.0, 0.1, 40.0, {}, {"callbacks_per_op": 1.0}),
    ]


@pytest.fixture
def replace(monkeypatch: pytest.MonkeyPatch) -> Replace:
    """Lets every scenario give these rows, and hold them to these parts."""

    def replace(
        parts: tuple[Part, ...] = (),
        found: list[Row] | None = None,
        error: Exception | None = None,
        note: str | None = None,
    ) -> None:
        def run(settings: Settings) -> list[Row]:
            if error is not None:
                raise error
            if note is not None:
                settings.note(note)
            return rows() if found is None else found

        module = types.SimpleNamespace(run=run, goal=lambda _: Goal("1 await overhead", parts) if parts else None)
        monkeypatch.setattr(command, "scenario", lambda name: module)

    return replace


def bench(*arguments: object) -> int:
    return cli.main(["bench", "--scenario", "single", *map(str, arguments)])


def test_all_goals_hold(replace: Replace, capsys: pytest.CaptureFixture[str]) -> None:
    replace((Part("share", 0.05, 0.1, note="1 of 20 us"),))
    assert bench() == 0
    out = capsys.readouterr().out
    for text in ("single: coroutines 64, placement two", "aioascend", "pyacl", "1 await overhead", "1 of 20 us"):
        assert text in out


def test_a_goal_that_does_not_hold_is_a_failure(replace: Replace, capsys: pytest.CaptureFixture[str]) -> None:
    replace((Part("good", 0.05, 0.1), Part("bad", 0.2, 0.1)))
    assert bench() == 1
    assert "no" in capsys.readouterr().out.split()


def test_json(replace: Replace, tmp_path: Path) -> None:
    replace((Part("share", float("inf"), 0.1, note="noise"),))
    file = tmp_path / "result.json"
    assert bench("--quick", "--json", file) == 1
    result = json.loads(file.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert result["rows"][1] == {
        "scenario": "single",
        "contender": "aioascend",
        "loop": "asyncio",
        "parameters": PARAMETERS,
        "unit": "us/op",
        "median": 2.0,
        "spread": 0.1,
        "cpu_us_per_op": 2.0,
        "ratios": {"to_floor": 2.0},
        "counters": {},
    }
    [goal] = result["goals"]
    assert (goal["name"], goal["value"], goal["target"], goal["holds"]) == ("1 await overhead", None, 1.0, False)
    assert goal["parts"] == [
        {"name": "share", "value": None, "target": 0.1, "at_least": False, "note": "noise", "holds": False}
    ]
    assert result["settings"]["quick"] is True
    machine = result["machine"]
    assert machine["library"]["kind"] == "sim"
    assert machine["pyacl"] == "stand-in"
    assert machine["cores"] == len(os.sched_getaffinity(0))
    assert result["unavailable"] == result["failed"] == {}
    assert list(result["seconds"]) == ["single"]


def test_comparing_with_an_earlier_run(replace: Replace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replace()
    file = tmp_path / "earlier.json"
    assert bench("--json", file) == 0
    replace(found=rows(factor=1.5))
    capsys.readouterr()
    assert bench("--compare", file) == 0
    lines = {line.split("│")[1].strip(): line for line in capsys.readouterr().out.splitlines() if "│" in line}
    assert "1.50" in lines["aioascend"]
    assert "1.00 ~" in lines["pyacl"]  # no change to speak of


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": 3}', '{"rows": [{"scenario": "single"}]}'])
def test_an_earlier_run_that_is_none(
    text: str, replace: Replace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replace()
    file = tmp_path / "earlier.json"
    file.write_text(text, encoding="utf-8")
    assert bench("--compare", file) == 2
    assert f"--compare {file}: no result" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--plot", "figure.pdf"], "must end in .svg or .png"),
        (["--plot", "/nowhere/figure.svg"], "there is no folder /nowhere"),
        (["--json", "/nowhere/result.json"], "there is no folder /nowhere"),
        (["--compare", "/nowhere/result.json"], "/nowhere/result.json"),
    ],
)
def test_wrong_usage_is_one_message(
    arguments: list[str], says: str, replace: Replace, capsys: pytest.CaptureFixture[str]
) -> None:
    replace()
    assert bench(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("aioascend bench: ")
    assert says in captured.err


def test_an_unknown_scenario_lists_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["bench", "--scenario", "no-such"])
    assert exit_.value.code == 2
    errors = capsys.readouterr().err
    assert all(name in errors for name in NAMES)


def test_what_cannot_run_here_is_said_and_no_failure(
    replace: Replace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replace(error=UnavailableError("it takes the simulator"))
    file = tmp_path / "result.json"
    assert bench("--json", file) == 0
    assert "single was not run: it takes the simulator" in capsys.readouterr().out
    assert json.loads(file.read_text(encoding="utf-8"))["unavailable"] == {"single": "it takes the simulator"}


def test_what_is_left_out_is_said(replace: Replace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replace(note="single: without 50 us")
    file = tmp_path / "result.json"
    assert bench("--json", file) == 0
    assert "single: without 50 us" in capsys.readouterr().out
    assert json.loads(file.read_text(encoding="utf-8"))["notes"] == ["single: without 50 us"]


@pytest.mark.parametrize(
    ("error", "status", "why"),
    [
        (ZeroDivisionError("no such number"), 1, "ZeroDivisionError: no such number"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=["failure", "Ctrl-C"],
)
def test_what_was_measured_before_a_failure_is_not_lost(
    error: BaseException,
    status: int,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ran: list[str] = []

    def run(name: str) -> list[Row]:
        ran.append(name)
        if name == "gather":
            raise error
        return rows()

    def scenario(name: str) -> types.SimpleNamespace:
        goal = Goal("1 await overhead", (Part("good", 0.05, 0.1),))
        return types.SimpleNamespace(run=lambda _: run(name), goal=lambda _: goal)

    monkeypatch.setattr(command, "scenario", scenario)
    file = tmp_path / "result.json"
    names = ("single", "gather", "chains")
    arguments = [text for name in names for text in ("--scenario", name)]
    assert cli.main(["bench", "--json", str(file), *arguments]) == status
    assert ran == ["single", "gather"]
    captured = capsys.readouterr()
    assert "single: coroutines 64, placement two" in captured.out
    assert f"gather failed, and nothing was run after it: {why}" in captured.err
    result = json.loads(file.read_text(encoding="utf-8"))
    assert len(result["rows"]) == 3
    assert [goal["holds"] for goal in result["goals"]] == [True]
    assert result["failed"] == {"gather": why}


def test_progress_is_said_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    progress = report.Progress()
    with progress:
        progress.start("single")
        for number in range(1000):
            progress.note(f"single {number}")
    assert "single" in capsys.readouterr().err.splitlines()[0]


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_a_plot_shows_every_setting(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"figure{suffix}"
    plot.draw(rows(), file)
    content = file.read_bytes()
    assert len(content) > 1000
    assert content.startswith(b"<?xml" if suffix == ".svg" else b"\x89PNG")
    plot.draw([], file)  # nothing could be run


@pytest.mark.parametrize("packages", [("rich",), ("uvloop", "trio"), ("matplotlib",)])
def test_without_its_packages_it_names_the_extra(packages: tuple[str, ...], tmp_path: Path) -> None:
    # A package of this name that cannot be imported stands for one that is not installed.
    for name in packages:
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('No module {name}')\n", encoding="utf-8")
    search_path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = _run("bench", "--plot", tmp_path / "figure.svg", PYTHONPATH=search_path)
    assert done.returncode == 2
    missing = " and no ".join(packages)
    assert done.stderr == f'aioascend bench: there is no {missing}: pip install "aioascend[bench]"\n'
    assert done.stdout == ""


def test_ctrl_c_ends_it_quietly() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "aioascend", "bench", "--scenario", "gather"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("gather")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGINT
    assert "Traceback" not in errors


def _run(*arguments: str, **environment: str) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "aioascend", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
