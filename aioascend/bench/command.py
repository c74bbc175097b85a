# SPDX-License-Identifier: Apache-2.0
"""`aioascend bench`: run scenarios, say what came of them."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from aioascend.bench.goals import merge
from aioascend.bench.results import Goal, Row
from aioascend.bench.scenarios import NAMES, scenario
from aioascend.bench.settings import Settings, UnavailableError

__all__ = ["add_arguments", "main"]

FAILED = 1
WRONG_USAGE = 2
PLOT_FORMATS = (".svg", ".png")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `aioascend bench`."""
    parser.add_argument(
        "--scenario",
        action="append",
        choices=NAMES,
        metavar="NAME",
        help=f"only this one; may be given again. There are {', '.join(NAMES)}",
    )
    parser.add_argument("--quick", action="store_true", help="only what the goals need; takes less than a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write rows and goals there")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the rows there, as .svg or .png")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="compare with an earlier --json")


def main(args: argparse.Namespace) -> int:
    """Run with parsed arguments; the exit status: 0, 1 where a goal does not hold, 2 after a message on stderr."""
    try:
        from aioascend.bench import report
    except ModuleNotFoundError as error:
        return _refuse(f'{error}: pip install "aioascend[bench]"')
    try:
        earlier = None if args.compare is None else report.read(args.compare)
        if args.plot is not None:
            _check_plot(args.plot)
        if args.json is not None and not args.json.parent.is_dir():
            raise ValueError(f"--json {args.json}: there is no folder {args.json.parent}")
    except (OSError, ValueError) as error:
        return _refuse(str(error))

    progress = report.Progress()
    settings = Settings.for_this_machine(quick=args.quick, progress=progress.note)
    began = time.monotonic()
    rows: list[Row] = []
    goals: list[Goal] = []
    unavailable: dict[str, str] = {}
    with progress:
        for name in dict.fromkeys(args.scenario or NAMES):
            progress.start(name)
            try:
                found = scenario(name).run(settings)
            except UnavailableError as error:
                unavailable[name] = str(error)
                continue
            rows += found
            if (goal := scenario(name).goal(found)) is not None:
                goals.append(goal)
    goals = merge(goals)
    outcome = report.outcome(settings, rows, goals, unavailable, time.monotonic() - began)
    report.show(outcome, rows, goals, earlier)
    if args.json is not None:
        args.json.write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
    if args.plot is not None:
        from aioascend.bench import plot

        plot.draw(rows, args.plot)
    return 0 if all(goal.holds for goal in goals) else FAILED


def _check_plot(path: Path) -> None:
    if path.suffix not in PLOT_FORMATS:
        raise ValueError(f"--plot {path}: it must end in {' or '.join(PLOT_FORMATS)}")
    if not path.parent.is_dir():
        raise ValueError(f"--plot {path}: there is no folder {path.parent}")
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        raise ValueError(f'--plot: {error}: pip install "aioascend[bench]"') from None


def _refuse(message: str) -> int:
    print(f"aioascend bench: {message}", file=sys.stderr)
    return WRONG_USAGE
