# SPDX-License-Identifier: Apache-2.0
"""The command `aioascend`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence

import aioascend
from aioascend import demo, doctor
from aioascend.bench import command as bench
from aioascend.soak import command as soak

__all__ = ["main"]

INTERRUPTED = 130  # what shells give for a process that Ctrl-C ended


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default those of the process; returns the exit status."""
    args = _parser().parse_args(argv)
    try:
        status: int = args.main(args)
    except KeyboardInterrupt:
        return INTERRUPTED
    except aioascend.AioascendError as error:
        print(f"aioascend: {error}", file=sys.stderr)
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="aioascend", description="Coroutine-native asyncio runtime for Ascend NPUs.")
    parser.add_argument("--version", action="version", version=f"aioascend {aioascend.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    command = commands.add_parser("demo", help="read pages with three neural networks, as plain coroutines")
    demo.add_arguments(command)
    command.set_defaults(main=demo.main)

    command = commands.add_parser("doctor", help="what works here, and what to do about what does not")
    doctor.add_arguments(command)
    command.set_defaults(main=doctor.main)

    command = commands.add_parser("bench", help="this runtime beside every other way to wait for an NPU")
    bench.add_arguments(command)
    command.set_defaults(main=bench.main)

    command = commands.add_parser(
        "soak", help="random work with random faults on the simulator, and a check of all of it"
    )
    soak.add_arguments(command)
    command.set_defaults(main=soak.main)

    command = commands.add_parser("backend", help="which ACL library is used, and why")
    command.add_argument("--json", action="store_true", help="print it as JSON")
    command.set_defaults(main=_backend)
    return parser


def _backend(args: argparse.Namespace) -> int:
    try:
        info = dataclasses.asdict(aioascend.backend_info())
    except ValueError as error:  # of a variable
        print(f"aioascend: {error}", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(info, indent=2))
        return 0
    for attempt in info.pop("attempts"):
        print("tried:", ": ".join(attempt))
    for name, value in info.items():
        print(f"{name.replace('_', ' ')}: {_words(value)}")
    return 0


def _words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(name for name, there in value.items() if there) or "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    return "unknown" if value is None else str(value)
