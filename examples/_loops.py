# SPDX-License-Identifier: Apache-2.0
"""What the examples share: a choice of event loops, the exit status, a gather for each of them, models of packages."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import anyio

Item = TypeVar("Item")
Result = TypeVar("Result")


def run(
    main: Callable[..., Awaitable[bool]],
    about: str | None,
    loops: Sequence[str] = ("asyncio", "uvloop", "trio"),
    **numbers: int,
) -> None:
    """Run `main` on the loop that --loop names; the exit status is 0 if it returns True.

    `main` gets the `numbers`, for each of which there is an option.
    """
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument("--loop", choices=loops, default=loops[0], help="event loop (default %(default)s)")
    for name, usual in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=usual, help=f"how many {name} (default %(default)s)")
    options = vars(parser.parse_args())
    loop = options.pop("loop")
    done = anyio.run(
        functools.partial(main, **options),
        backend="trio" if loop == "trio" else "asyncio",
        backend_options={"use_uvloop": True} if loop == "uvloop" else {},
    )
    sys.exit(0 if done else "That is not what should have come out.")


async def together(work: Callable[[Item], Awaitable[Result]], items: Iterable[Item]) -> list[Result]:
    """Do `work` for all items at once, as `asyncio.gather` does; if one fails, the others are cancelled."""
    results: dict[int, Result] = {}

    async def keep(index: int, item: Item) -> None:
        results[index] = await work(item)

    async with anyio.create_task_group() as tasks:
        for index, item in enumerate(items):
            tasks.start_soon(keep, index, item)
    return [results[index] for index in sorted(results)]


def package_file(package: str, name: str) -> Path:
    """A file inside an installed package, which is not imported. docs/examples.md says how to install those."""
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (path := Path(folder, name)).is_file():
            return path
    sys.exit(f"This needs {name} of the package {package}; docs/examples.md says how to install it.")
