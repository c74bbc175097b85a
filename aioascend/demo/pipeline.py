# SPDX-License-Identifier: Apache-2.0
"""The coroutines: detect the lines of a page, then classify and recognise all of them at once.

Everything that waits is a coroutine, everything that computes on the host for more than a few milliseconds
goes to a worker thread. It runs under asyncio, uvloop and trio.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import anyio
import anyio.to_thread

from aioascend.demo import detect, lines
from aioascend.demo.detect import FloatArray
from aioascend.demo.pages import Page, PixelArray

PAGES_AT_ONCE = 4  # bounds the memory for pages that wait; enough to keep the device busy

Item = TypeVar("Item")
Result = TypeVar("Result")

Model = Callable[[FloatArray], Awaitable[FloatArray]]
"""A loaded model: `await model(x)` runs it on one input and returns its one output."""


@dataclass(frozen=True)
class Models:
    """The three models and the recogniser's alphabet (see `files.read_alphabet`)."""

    detect: Model
    classify: Model
    recognise: Model
    alphabet: Sequence[str]


@dataclass(frozen=True)
class Line:
    """One line that was read: its box (see `detect.find_boxes`), its text, how sure of it we are (0 to 1)."""

    box: FloatArray
    text: str
    score: float


class Watcher(Protocol):
    """Who wants to hear about lines as soon as they are there."""

    def found(self, page: Page, count: int) -> None:
        """`count` boxes were found on `page`; each will be followed by one call of `read`."""

    def read(self, page: Page, line: Line) -> None:
        """One box was read; its text is empty if there was none in it."""


class Compose(Protocol):
    """A way to do `work` for each item; the results come in the order of the items."""

    async def __call__(self, work: Callable[[Item], Awaitable[Result]], items: Iterable[Item]) -> list[Result]: ...


async def together(work: Callable[[Item], Awaitable[Result]], items: Iterable[Item]) -> list[Result]:
    """Do `work` for all items at once, as `asyncio.gather` does; if one fails, the others are cancelled."""
    results: dict[int, Result] = {}

    async def keep(index: int, item: Item) -> None:
        results[index] = await work(item)

    async with anyio.create_task_group() as group:
        for index, item in enumerate(items):
            group.start_soon(keep, index, item)
    return [results[index] for index in sorted(results)]


async def one_by_one(work: Callable[[Item], Awaitable[Result]], items: Iterable[Item]) -> list[Result]:
    """Do `work` for one item after the other: what the same code takes without concurrency."""
    return [await work(item) for item in items]


async def read_pages(
    pages: Sequence[Page], models: Models, compose: Compose = together, watcher: Watcher | None = None
) -> list[list[Line]]:
    """Read all pages; the lines of each in reading order."""
    turn = anyio.Semaphore(PAGES_AT_ONCE)

    async def read(page: Page) -> list[Line]:
        async with turn:
            return await read_page(page, models, compose, watcher)

    return await compose(read, pages)


async def read_page(
    page: Page, models: Models, compose: Compose = together, watcher: Watcher | None = None
) -> list[Line]:
    """Read one page: its lines in reading order, without those that turned out not to be text."""
    prepared = await anyio.to_thread.run_sync(detect.detector_input, page.image)
    likely = await models.detect(prepared.tensor)
    found = await anyio.to_thread.run_sync(_cut_lines, page.image, likely, prepared.scale)
    if watcher is not None:
        watcher.found(page, len(found))

    async def read(box_and_image: tuple[FloatArray, PixelArray]) -> Line:
        box, image = box_and_image
        line = Line(box, *await read_line(image, models))
        if watcher is not None:
            watcher.read(page, line)
        return line

    return [line for line in await compose(read, found) if line.text]


async def read_line(image: PixelArray, models: Models) -> tuple[str, float]:
    """Read one line that was cut out: text and score, or ("", 0.0) if it is no text."""
    if lines.is_upside_down(await models.classify(lines.classifier_input(image))):
        image = lines.turned_around(image)
    answer = await models.recognise(lines.recogniser_input(image))
    text, score = lines.read_text(answer, models.alphabet)
    return (text, score) if score >= lines.SURE_OF_TEXT else ("", 0.0)


def _cut_lines(image: PixelArray, likely: FloatArray, scale: float) -> list[tuple[FloatArray, PixelArray]]:
    return [(box, lines.cut_out(image, box)) for box in detect.find_boxes(likely, scale)]
