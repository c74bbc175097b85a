# SPDX-License-Identifier: Apache-2.0
"""The rows as bars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from aioascend.bench.harness import FLOOR
from aioascend.bench.results import Row
from aioascend.bench.sections import sections

__all__ = ["draw"]

_COLUMNS = 2
_LOGARITHMIC_FROM = 20.0
_OURS = "#1f6feb"
_FLOOR = "#8b949e"
_OTHERS = "#d0883b"


def draw(rows: Sequence[Row], path: Path) -> None:
    """One panel for each scenario and setting; the bar of a contender is its median, the whisker its spread."""
    panels = sections(rows)
    lines = [panels[i : i + _COLUMNS] for i in range(0, len(panels), _COLUMNS)] or [[]]
    tallest = [max((len(panel.rows) for panel in line), default=1) for line in lines]
    heights = [1.0 + 0.22 * bars for bars in tallest]
    figure = Figure(figsize=(7.0 * _COLUMNS, sum(heights)), layout="constrained")
    axes = figure.subplots(len(lines), _COLUMNS, squeeze=False, height_ratios=heights)
    for number, (axis, panel) in enumerate(zip(axes.flat, panels, strict=False)):
        medians = [row.median for row in panel.rows]
        colours = [_colour(row.contender) for row in panel.rows]
        axis.barh(range(len(medians)), medians, xerr=[row.spread for row in panel.rows], color=colours)
        axis.set_yticks(range(len(medians)), [_label(row, panel.differing) for row in panel.rows], fontsize=7)
        axis.set_ylim(tallest[number // _COLUMNS] - 0.5, -0.5)  # bars of one thickness everywhere
        if min(medians) > 0 and max(medians) / min(medians) > _LOGARITHMIC_FROM:
            axis.set_xscale("log")
        axis.tick_params(axis="x", labelsize=7)
        axis.set_xlabel(panel.unit, fontsize=7)
        axis.set_title(panel.title, fontsize=8, loc="left", wrap=True)
    for axis in list(axes.flat)[len(panels) :]:
        axis.set_axis_off()
    figure.savefig(path)


def _label(row: Row, differing: Sequence[str]) -> str:
    setting = [f"{name} {row.parameters[name]}" for name in differing if name in row.parameters]
    return ", ".join([row.contender, *([] if row.loop == "-" else [row.loop]), *setting])


def _colour(contender: str) -> str:
    if contender.startswith("aioascend"):
        return _OURS
    return _FLOOR if contender == FLOOR else _OTHERS
