# SPDX-License-Identifier: Apache-2.0
"""`aioascend demo`: reads pages with three neural networks, as plain coroutines over several streams."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from aioascend._arguments import parsed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `aioascend demo`."""
    parser.add_argument(
        "images",
        nargs="*",
        type=Path,
        metavar="IMAGE",
        help="page images; by default a photographed page and ten rendered ones whose text is known",
    )
    parser.add_argument(
        "--models",
        type=Path,
        metavar="DIR",
        help="folder with det.om, cls.om, rec.om (or .onnx); by default the models of rapidocr-onnxruntime",
    )
    parser.add_argument(
        "--device",
        type=parsed(int, lambda index: 0 <= index < 2**31, "the index of a device, 0 or above"),
        default=0,
        help="device id (default 0)",
    )
    parser.add_argument(
        "--loop",
        choices=("asyncio", "uvloop", "trio"),
        default="asyncio",
        help="event loop (default asyncio)",
    )
    parser.add_argument(
        "--no-sequential",
        dest="sequential",
        action="store_false",
        help="leave out the second run, which reads one line after the other for comparison",
    )


def main(args: argparse.Namespace) -> int:
    """Run the demo with parsed arguments; the exit status: 0, or 2 after a message on stderr."""
    try:
        import anyio

        from aioascend.demo.runner import run
    except ModuleNotFoundError as error:
        print(f'aioascend demo: {error}: pip install "aioascend[demo]"', file=sys.stderr)
        return 2

    backend = "trio" if args.loop == "trio" else "asyncio"
    options = {"use_uvloop": True} if args.loop == "uvloop" else {}
    try:
        anyio.run(
            run,
            args.images,
            args.models,
            args.device,
            args.sequential,
            backend=backend,
            backend_options=options,
        )
    except (ImportError, OSError, ValueError) as error:
        print(f"aioascend demo: {error}", file=sys.stderr)
        return 2
    return 0
