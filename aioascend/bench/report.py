# SPDX-License-Identifier: Apache-2.0
"""What `aioascend bench` prints and writes."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import platform
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.table import Table

import aioascend
from aioascend._words import counted
from aioascend.bench.results import Goal, Outcome, Row
from aioascend.bench.rig import load_acl
from aioascend.bench.sections import Section, sections
from aioascend.bench.settings import Settings

__all__ = ["Progress", "read", "show", "to_json"]

_SAY_AGAIN_SECONDS = 5.0
_FILE_WIDTH = 140  # where the output is no terminal


class Progress:
    """Says on stderr what is being measured: on a terminal in one line, elsewhere every few seconds."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._said = 0.0

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._console.is_terminal:
            self._console.print(" " * (self._console.width - 1), end="\r")

    def start(self, scenario: str) -> None:
        """A scenario begins."""
        self._said = 0.0
        self.note(scenario)

    def note(self, text: str) -> None:
        """Something is measured now. Nothing is animated: a thread that draws would be measured as well."""
        if self._console.is_terminal:
            self._console.print(text[: self._console.width - 1].ljust(self._console.width - 1), end="\r")
        elif time.monotonic() - self._said >= _SAY_AGAIN_SECONDS:
            self._said = time.monotonic()
            self._console.print(text, soft_wrap=True)


def to_json(settings: Settings, done: Outcome) -> dict[str, Any]:
    """Everything, ready for JSON. What is infinite or no number becomes null."""
    plain: dict[str, Any] = _plain(
        {
            "aioascend": aioascend.__version__,
            "machine": _machine(settings),
            "settings": {
                "quick": settings.quick,
                "rounds": settings.rounds,
                "loops": settings.loops,
                "placements": settings.placements,
            },
            **dataclasses.asdict(done),
            "goals": [
                {
                    "name": goal.name,
                    "value": goal.value,
                    "target": goal.target,
                    "holds": goal.holds,
                    "parts": [{**dataclasses.asdict(part), "holds": part.holds} for part in goal.parts],
                }
                for goal in done.goals
            ],
        }
    )
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _machine(settings: Settings) -> dict[str, Any]:
    backend = settings.backend
    packages = ("uvloop", "trio", "anyio", "numpy")
    return {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "library": {
            "kind": backend.kind,
            "path": backend.library.path,
            "acl_version": backend.library.acl_version(),
            "soc": backend.library.soc_name(),
        },
        "pyacl": load_acl(settings)[1],
        "packages": {name: _version(name) for name in packages},
    }


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def read(path: Path) -> dict[str, Any]:
    """An earlier outcome.

    Raises:
        ValueError: there is none in this file.
    """
    try:
        earlier = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(earlier["rows"], list):
            raise TypeError("rows are no list")
        for row in earlier["rows"]:
            _key(row), row["median"], row["spread"]
    except OSError as error:
        raise ValueError(f"--compare {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"--compare {path}: no result of `aioascend bench --json`") from None
    return dict(earlier)


def _key(row: dict[str, Any]) -> str:
    return json.dumps([row["scenario"], row["contender"], row["loop"], row["parameters"]], sort_keys=True)


# --- the terminal ---


def show(settings: Settings, done: Outcome, earlier: dict[str, Any] | None = None) -> None:
    """Prints the tables."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    machine = _machine(settings)
    library = machine["library"]
    console.print(
        f"{machine['cpu']}, {counted(machine['cores'], 'core')}, Python {machine['python']}; "
        f"{library['path']} ({library['kind']}); pyACL: {machine['pyacl']}; "
        f"median of {counted(settings.rounds, 'round')}, {sum(done.seconds.values()):.1f} s",
        soft_wrap=True,
    )
    before = {_key(row): row for row in earlier["rows"]} if earlier else None
    for section in sections(done.rows):
        console.print(_table(section, before))
    for note in [*done.notes, *(f"{name} was not run: {why}" for name, why in done.unavailable.items())]:
        console.print(note, style="yellow", soft_wrap=True)
    if done.goals:
        console.print(_goal_table(done.goals))
        console.print(_verdict(done.goals), soft_wrap=True)


def _table(section: Section, before: dict[str, dict[str, Any]] | None) -> Table:
    table = Table(title=section.title, title_justify="left")
    counters = [
        name for name in dict.fromkeys(name for row in section.rows for name in row.counters) if _is_shown(name)
    ]
    ratios = list(dict.fromkeys(name for row in section.rows for name in row.ratios))
    has_cpu = any(row.cpu_us_per_op is not None for row in section.rows)
    for heading in ("contender", "loop"):
        table.add_column(heading, no_wrap=True)
    figures = [section.unit, "±", *(["CPU us/op"] if has_cpu else []), *ratios, *counters]
    for heading in [*section.differing, *figures, *(["before", "now/before"] if before is not None else [])]:
        table.add_column(heading.replace("_", " "), justify="right")
    for row in section.rows:
        cells = [row.contender, row.loop, *(_number(row.parameters.get(name)) for name in section.differing)]
        cells += [_number(row.median), _number(row.spread)]
        cells += [_number(row.cpu_us_per_op)] if has_cpu else []
        cells += [_number(row.ratios.get(name)) for name in ratios]
        cells += [_number(row.counters.get(name)) for name in counters]
        if before is not None:
            cells += _change(row, before.get(_key(dataclasses.asdict(row))))
        table.add_row(*cells, style="bold" if row.contender.startswith("aioascend") else None)
    return table


def _is_shown(counter: str) -> bool:
    return not counter.endswith("_spread")


def _change(row: Row, earlier: dict[str, Any] | None) -> list[str]:
    """The earlier median, and how it has changed; no verdict where the spreads overlap."""
    if earlier is None or not earlier["median"]:
        return ["", ""]
    certain = abs(row.median - earlier["median"]) > row.spread + earlier["spread"]
    return [_number(earlier["median"]), f"{row.median / earlier['median']:.2f}" + ("" if certain else " ~")]


def _goal_table(goals: Sequence[Goal]) -> Table:
    table = Table(title="goals", title_justify="left")
    for heading in ("goal", "figure"):
        table.add_column(heading)
    for heading in ("value", "target"):
        table.add_column(heading, justify="right")
    for heading in ("holds", "whence"):
        table.add_column(heading)
    for goal in goals:
        for part in goal.parts or ():
            target, holds = "", "reported"
            if part.target is not None:
                target = f"{'≥' if part.at_least else '≤'} {_number(part.target)}"
                holds = "[green]yes[/]" if part.holds else "[red]no[/]"
            table.add_row(goal.name, part.name, _number(part.value), target, holds, part.note)
        if not goal.parts:
            table.add_row(goal.name, "not measured: it takes two cores", "", "", "[red]no[/]", "")
        table.add_section()
    return table


def _verdict(goals: Sequence[Goal]) -> str:
    held = [part for goal in goals for part in goal.parts if part.target is not None]
    short = [part.name for part in held if not part.holds]
    verdict = f"{len(held) - len(short)} of {len(held)} figures hold"
    return f"{verdict}; short: {'; '.join(short)}" if short else verdict


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return "" if value is None else str(value)
