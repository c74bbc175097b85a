# SPDX-License-Identifier: Apache-2.0
"""`aioascend bench`: run scenarios, say what came of them."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import sys
import time
import traceback
from collections.abc import Iterable
from pathlib import Path

from aioascend._arguments import check_file
from aioascend.bench.goals import merge
from aioascend.bench.results import Outcome
from aioascend.bench.scenarios import NAMES, scenario
from aioascend.bench.settings import Settings, UnavailableError

__all__ = ["add_arguments", "main"]

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130
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
    """Run with parsed arguments.

    Returns:
        The exit status: 0; 1 where a goal does not hold or a scenario failed, and 130 after Ctrl-C, what was measured
        until then being shown and written all the same; 2 after a message on stderr that says what is wrong with the
        arguments.

    Raises:
        AioascendError: there is no ACL library to measure with.
    """
    settings = Settings.for_this_machine(quick=args.quick)
    if missing := _missing([*settings.loops, "rich", *(["matplotlib"] if args.plot else [])]):
        return _refuse(f'there is no {" and no ".join(missing)}: pip install "aioascend[bench]"')
    from aioascend.bench import report

    settings.backend  # noqa: B018 - before anything is measured
    try:
        earlier = None if args.compare is None else report.read(args.compare)
        if args.json is not None:
            check_file("--json", args.json)
        if args.plot is not None:
            check_file("--plot", args.plot, PLOT_FORMATS)
    except (OSError, ValueError) as error:
        return _refuse(str(error))

    done, progress = Outcome(), report.Progress()
    settings = dataclasses.replace(settings, progress=progress.note, note=done.notes.append)
    with progress:
        for name in dict.fromkeys(args.scenario or NAMES):
            progress.start(name)
            began = time.monotonic()
            try:
                rows = scenario(name).run(settings)
            except UnavailableError as error:
                done.unavailable[name] = str(error)
                continue
            except Exception as error:
                done.failed[name] = f"{type(error).__name__}: {error}"
                traceback.print_exception(error)
                break
            except KeyboardInterrupt:
                done.failed[name] = "interrupted"
                break
            done.seconds[name] = time.monotonic() - began
            done.rows += rows
            if (goal := scenario(name).goal(rows)) is not None:
                done.goals = merge([*done.goals, goal])
    report.show(settings, done, earlier)
    try:
        if args.json is not None:
            args.json.write_text(json.dumps(report.to_json(settings, done), indent=1) + "\n", encoding="utf-8")
        if args.plot is not None:
            from aioascend.bench import plot

            plot.draw(done.rows, args.plot)
    except OSError as error:
        print(f"aioascend bench: {error}", file=sys.stderr)
        return FAILED
    for name, why in done.failed.items():
        print(f"aioascend bench: {name} failed, and nothing was run after it: {why}", file=sys.stderr)
    if "interrupted" in done.failed.values():
        return INTERRUPTED
    return 0 if not done.failed and all(goal.holds for goal in done.goals) else FAILED


def _missing(packages: Iterable[str]) -> list[str]:
    return [package for package in packages if not _can_import(package)]


def _can_import(package: str) -> bool:
    try:
        importlib.import_module(package)
    except ModuleNotFoundError:
        return False
    return True


def _refuse(message: str) -> int:
    print(f"aioascend bench: {message}", file=sys.stderr)
    return WRONG_USAGE
