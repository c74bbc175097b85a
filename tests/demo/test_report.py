# SPDX-License-Identifier: Apache-2.0
"""The overlap on a timeline, and what is printed."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import pytest
from rich.console import Console

from aioascend.demo.pages import Page
from aioascend.demo.pipeline import Line
from aioascend.demo.report import LineReport, Overlap, Summary, overlap, progress_bar

SECOND = 1_000_000_000


@dataclass(frozen=True)
class Task:
    unit: str
    start_ns: int
    end_ns: int


def task(unit: str, start: float, end: float) -> Task:
    return Task(unit, int(start * SECOND), int(end * SECOND))


@pytest.mark.parametrize(
    ("tasks", "busy", "shared"),
    [
        ([], 0, 0),
        ([task("ai_core", 1, 3)], 2, 0),
        ([task("ai_core", 1, 3), task("ai_core", 3, 4)], 3, 0),
        ([task("ai_core", 1, 3), task("copy_in", 2, 5)], 4, 1),
        ([task("ai_core", 0, 10), task("copy_in", 2, 3), task("copy_out", 4, 5)], 10, 2),
        ([task("ai_core", 0, 4), task("ai_core", 1, 3), task("ai_core", 2, 4)], 4, 3),
        ([task("ai_core", 0, 1), task("ai_core", 5, 6)], 2, 0),
        ([task("none", 0, 9), task("host", 0, 9), task("copy_in", 2, 2)], 0, 0),
    ],
)
def test_overlap(tasks: list[Task], busy: float, shared: float) -> None:
    measured = overlap(reversed(tasks))
    assert measured.busy == busy
    assert measured.shared == shared
    assert measured.share == (shared / busy if busy else 0)


def test_work_is_added_up_by_unit() -> None:
    measured = overlap([task("ai_core", 0, 2), task("copy_in", 0, 0.5), task("ai_core", 1, 2)])
    assert measured.work == {"ai_core": 3.0, "copy_in": 0.5}


def console() -> Console:
    return Console(file=io.StringIO(), width=120, color_system=None)


def printed(screen: Console) -> str:
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


PAGE = Page("page 1", np.zeros((1, 1, 3), np.uint8), ("[a] line",))
LINE = Line(np.zeros((4, 2), np.float32), "[a] line", 0.99)


@pytest.mark.parametrize("show_lines", [True, False])
def test_lines_are_printed_as_they_are_and_counted(show_lines: bool) -> None:
    screen = console()
    with progress_bar(screen) as progress:
        watcher = LineReport(progress, "reading", show_lines)
        watcher.found(PAGE, 2)
        watcher.read(PAGE, LINE)
        watcher.read(PAGE, Line(LINE.box, "", 0.0))
    assert printed(screen).count("page 1  [a] line") == show_lines
    assert "2/2" in printed(screen)


def test_summary_with_everything() -> None:
    screen = console()
    Summary(
        backend="simulator [x]",
        pages=[PAGE, PAGE],
        lines=[[LINE], [LINE, LINE]],
        load_seconds=1.0,
        seconds=2.0,
        sequential_seconds=5.0,
        characters=200,
        right=199,
        overlap=Overlap({"ai_core": 3.0}, busy=4.0, shared=3.0),
    ).show(screen)
    shown = printed(screen)
    for part in (
        "simulator [x]",
        "3 lines on 2 pages in 2.00 s",
        "199 of 200 characters",
        "99.50 %",
        "5.00 s for the same, 2.50 times as long",
        "ai_core 3.00 s",
        "75 % of the busy time",
    ):
        assert part in shown


def test_summary_leaves_out_what_was_not_measured() -> None:
    screen = console()
    summary = Summary("npu", [PAGE], [[LINE]], 1.0, 2.0, None, 0, 0, None)
    summary.show(screen)
    assert summary.accuracy is None
    assert "one by one" not in printed(screen)
    assert "right" not in printed(screen)
    assert "overlap" not in printed(screen)
