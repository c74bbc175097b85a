# SPDX-License-Identifier: Apache-2.0
"""The rows as bars."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from aioascend.bench.results import Row

__all__ = ["draw"]

_COLUMNS = 3
_COLOURS = {"aioascend": "#1f6feb", "floor": "#8b949e"}
_OTHERS = "#d0883b"


def draw(rows: Sequence[Row], path: Path) -> None:
    """One panel for each scenario and setting; the bar of a contender is its median, the whisker its spread."""
    panels = [
        (key, list(group))
        for key, group in itertools.groupby(rows, lambda row: (row.scenario, tuple(row.parameters.items()), row.unit))
    ]
    lines = max(1, -(-len(panels) // _COLUMNS))
    tallest = max((len(group) for _, group in panels), default=1)
    figure = Figure(figsize=(5.2 * _COLUMNS, lines * (1.0 + 0.24 * tallest)), layout="constrained")
    axes = figure.subplots(lines, _COLUMNS, squeeze=False)
    for axis, ((scenario, parameters, unit), group) in zip(axes.flat, panels, strict=False):
        labels = [row.contender + ("" if row.loop == "-" else f", {row.loop}") for row in group]
        medians = [row.median for row in group]
        colours = [_COLOURS.get(row.contender, _OTHERS) for row in group]
        axis.barh(range(len(group)), medians, xerr=[row.spread for row in group], color=colours)
        axis.set_yticks(range(len(group)), labels, fontsize=7)
        axis.invert_yaxis()
        if min(medians) > 0 and max(medians) / min(medians) > 20:
            axis.set_xscale("log")
        axis.tick_params(axis="x", labelsize=7)
        axis.set_xlabel(unit, fontsize=7)
        setting = ", ".join(f"{key} {value}" for key, value in parameters)
        axis.set_title(f"{scenario}: {setting}", fontsize=8, loc="left", wrap=True)
    for axis in list(axes.flat)[len(panels) :]:
        axis.set_axis_off()
    figure.savefig(path)
