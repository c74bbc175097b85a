# SPDX-License-Identifier: Apache-2.0
"""The demo from start to end: pages, models, a run with everything at once, a run one by one, a summary."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import anyio
import anyio.to_thread
import numpy as np
from rich.console import Console

import aioascend as aa
from aioascend import testing
from aioascend.demo import detect, lines
from aioascend.demo.detect import FloatArray
from aioascend.demo.files import ModelFiles, bundled_models, models_in, read_alphabet
from aioascend.demo.pages import Page, characters_right, default_pages, read_page
from aioascend.demo.pipeline import Compose, Line, Models, one_by_one, read_pages, together
from aioascend.demo.report import LineReport, Summary, progress_bar

COPIES = 2  # of each model: a loaded model runs on one stream at a time
PROFILE = "inference-card"  # what the simulated device is like, unless AIOASCEND_SIM_PROFILE says otherwise


async def run(
    images: Sequence[Path] = (),
    models: Path | None = None,
    device: int = 0,
    sequential: bool = True,
    console: Console | None = None,
) -> Summary:
    """Read `images`, by default the photographed and the rendered pages; show it, return the figures.

    `models` is a folder (see `files.models_in`), by default the bundled models. Unless `sequential` is false,
    the pages are read a second time, one line after the other, for comparison. Raises `FileNotFoundError` for
    what is not installed, `ValueError` for files that are no images, and what opening a device or loading a
    model raises.
    """
    screen = console or Console()
    chosen = bundled_models() if models is None else models_in(models)
    pages = await anyio.to_thread.run_sync(_load_pages, images)
    info = await anyio.to_thread.run_sync(aa.backend_info)
    simulator = testing.simulator() if info.kind == "sim" else None

    async with aa.open_device(device) as npu:
        if simulator is not None and "AIOASCEND_SIM_PROFILE" not in os.environ:
            simulator.set_profile(PROFILE, npu)
        began = time.perf_counter()
        loaded = await load_models(npu, chosen, pages)
        load_seconds = time.perf_counter() - began

        if simulator is not None:
            simulator.clear_timeline()
        found, seconds = await _timed(screen, "at once", pages, loaded, together, show_lines=True)
        overlap = None if simulator is None else testing.unit_overlap(simulator.timeline())

        in_turn = None
        if sequential:
            _, in_turn = await _timed(screen, "one by one", pages, loaded, one_by_one, show_lines=False)

    right, characters = _characters(pages, found)
    summary = Summary(
        device=f"{info.soc or 'unknown chip'}, {'simulated' if info.kind == 'sim' else info.path}",
        pages=pages,
        lines=found,
        load_seconds=load_seconds,
        seconds=seconds,
        sequential_seconds=in_turn,
        characters=characters,
        right=right,
        overlap=overlap,
    )
    summary.show(screen)
    return summary


def _load_pages(images: Sequence[Path]) -> list[Page]:
    return [read_page(path) for path in images] if images else default_pages()


class Copies:
    """A model loaded several times: as many runs at the same time, on as many streams; more of them wait."""

    def __init__(self, models: Iterable[aa.Model]) -> None:
        self._idle = list(models)
        self._free = anyio.Semaphore(len(self._idle))

    async def __call__(self, x: FloatArray) -> FloatArray:
        async with self._free:
            model = self._idle.pop()
            try:
                output: FloatArray | tuple[FloatArray, ...] = await model(x)
            finally:
                self._idle.append(model)
        if isinstance(output, tuple):
            raise ValueError(f"{model.name} has {len(output)} outputs, the demo needs models that have one")
        return output


async def load_models(npu: aa.Device, files: ModelFiles, pages: Sequence[Page]) -> Models:
    """Load all models at the same time and run each copy once in each shape that `pages` need.

    The first run in a shape is slower than the later ones.
    """

    async def load(model: tuple[Path, Sequence[tuple[int, ...]]]) -> Copies:
        path, shapes = model

        async def load_copy(_: int) -> aa.Model:
            copy = await npu.load_model(path)
            for shape in shapes:
                await copy(np.zeros(shape, np.float32))
            return copy

        return Copies(await together(load_copy, range(COPIES)))

    sizes = {detect.detector_size(*page.image.shape[:2]) for page in pages}
    stages: list[tuple[Path, Sequence[tuple[int, ...]]]] = [
        (files.detect, [(1, 3, *size) for size in sorted(sizes)]),
        (files.classify, [(1, 3, lines.LINE_HEIGHT, lines.CLASSIFIER_WIDTH)]),
        (files.recognise, [(1, 3, lines.LINE_HEIGHT, width) for width in lines.WIDTHS]),
    ]
    detector, classifier, recogniser = await together(load, stages)
    alphabet = await anyio.to_thread.run_sync(read_alphabet, files.alphabet)
    return Models(detector, classifier, recogniser, alphabet)


async def _timed(
    screen: Console, title: str, pages: Sequence[Page], models: Models, compose: Compose, show_lines: bool
) -> tuple[list[list[Line]], float]:
    with progress_bar(screen) as progress:
        watcher = LineReport(progress, title, show_lines)
        began = time.perf_counter()
        found = await read_pages(pages, models, compose, watcher)
        return found, time.perf_counter() - began


def _characters(pages: Sequence[Page], found: Sequence[Sequence[Line]]) -> tuple[int, int]:
    right = total = 0
    for page, read in zip(pages, found, strict=True):
        if page.truth is not None:
            page_right, page_total = characters_right(page.truth, [line.text for line in read])
            right, total = right + page_right, total + page_total
    return right, total
