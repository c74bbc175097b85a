# SPDX-License-Identifier: Apache-2.0
"""What is printed."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from aioascend.demo.pages import Page
from aioascend.demo.pipeline import Line
from aioascend.demo.report import LineReport, Summary, progress_bar
from aioascend.testing import UnitOverlap


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
        device="simulator [x]",
        pages=[PAGE, PAGE],
        lines=[[LINE], [LINE, LINE]],
        load_seconds=1.0,
        seconds=2.0,
        sequential_seconds=5.0,
        characters=200,
        right=199,
        overlap=UnitOverlap(span=2.0, busy={"ai_core": 0.8, "copy_in": 0.25}, active=0.9, shared=0.75),
    ).show(screen)
    shown = printed(screen)
    for part in (
        "simulator [x]",
        "3 lines on 2 pages in 2.00 s",
        "199 of 200 characters",
        "99.50 %",
        "5.00 s for the same, 2.50 times as long",
        "ai_core 80 %, copy_in 25 %",
        "75 % of the time",
    ):
        assert part in shown


def test_summary_leaves_out_what_was_not_measured() -> None:
    screen = console()
    summary = Summary("npu", [PAGE], [[LINE]], 1.0, 2.0, None, 0, 0, None)
    summary.show(screen)
    assert summary.accuracy is None
    assert "1 line on 1 page in" in printed(screen)
    assert "one by one" not in printed(screen)
    assert "right" not in printed(screen)
    assert "overlap" not in printed(screen)
