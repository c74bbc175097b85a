# SPDX-License-Identifier: Apache-2.0
"""`aioascend soak`: the command."""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import secrets
import sys
from pathlib import Path

from aioascend._arguments import check_file, parsed
from aioascend.soak import report
from aioascend.soak.plan import Rates
from aioascend.soak.runner import Settings, soak

__all__ = ["add_arguments", "main"]

FAILED = 1
WRONG_USAGE = 2
LOOPS = ("asyncio", "uvloop", "trio")
MOST_STREAMS = 128
"""A lane takes several of the 1024 streams that a device of the simulator has: those of its models count."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `aioascend soak`."""
    bound = parser.add_mutually_exclusive_group()
    minutes = parsed(float, lambda minutes: 0 < minutes < math.inf, "a number above 0")
    bound.add_argument("--minutes", type=minutes, metavar="N", help="how long; 1 by default")
    operations = parsed(int, lambda count: count > 0, "a whole number above 0")
    bound.add_argument("--operations", type=operations, metavar="M", help="how many operations, instead")
    parser.add_argument("--seed", type=int, metavar="S", help="repeats the plan of an earlier run; random by default")
    parser.add_argument("--loop", choices=LOOPS, default="asyncio", help="the event loop; asyncio by default")
    parser.add_argument(
        "--streams",
        type=parsed(int, lambda count: 0 < count <= MOST_STREAMS, f"a whole number from 1 to {MOST_STREAMS}"),
        default=8,
        metavar="N",
        help=f"streams with a lane each, 1 to {MOST_STREAMS}; 8 by default",
    )
    share = parsed(float, lambda rate: 0 <= rate <= 1, "a rate from 0 to 1")
    parser.add_argument("--faults", type=share, default=0.01, metavar="RATE", help="per operation; 0.01 by default")
    parser.add_argument(
        "--cancellations", type=share, default=0.05, metavar="RATE", help="per operation; 0.05 by default"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")


def main(args: argparse.Namespace) -> int:
    """Run with parsed arguments.

    Returns:
        The exit status: 0; 1 when something was not as it must be, after saying what; 2 after a message on stderr that
        says what is wrong with the arguments, or why the result could not be written.

    Raises:
        AioascendError: the library in use is not the simulator.
    """
    if args.loop != "asyncio" and importlib.util.find_spec(args.loop) is None:
        print(f"aioascend soak: --loop {args.loop}: it is not installed: pip install {args.loop}", file=sys.stderr)
        return WRONG_USAGE
    if args.json is not None:
        try:
            check_file("--json", args.json)
        except ValueError as error:
            print(f"aioascend soak: {error}", file=sys.stderr)
            return WRONG_USAGE
    seed = secrets.randbelow(1 << 32) if args.seed is None else args.seed
    minutes = 1.0 if args.minutes is None and args.operations is None else args.minutes
    settings = Settings(
        seed=seed,
        loop=args.loop,
        rates=Rates(args.faults, args.cancellations, args.streams),
        seconds=math.inf if minutes is None else minutes * 60,
        operations=args.operations,
    )
    report.begin(settings)
    result = soak(settings, report.Progress())
    report.show(result)
    status = 0 if result.problem is None else FAILED
    if args.json is not None:
        try:
            args.json.write_text(json.dumps(report.to_json(settings, result), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            print(f"aioascend soak: --json {args.json}: {error.strerror}", file=sys.stderr)
            return status or WRONG_USAGE
    return status
