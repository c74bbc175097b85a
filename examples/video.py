# SPDX-License-Identifier: Apache-2.0
"""A stream of frames through three models and a step that puts their answers together, frame by frame.

    python examples/video.py [--loop asyncio|uvloop|trio]

The stages work at the same time, on frames that follow each other: while the models look at one frame, the next one is
prepared and the one before is fused. A stage that is slower than the others holds the source up, so that no more than a
few frames are in memory. The three models look at a frame at once.

The models are descriptions (docs/simulator/model-description.md); the frames are drawn here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import anyio.lowlevel
import numpy as np
from numpy.typing import NDArray

import aioascend as aa
from _loops import run, together

FRAMES, SIZE, BRIGHT = 40, 64, 6.0
INPUT = f'inputs = [{{ name = "frame", shape = [1, 3, {SIZE}, {SIZE}] }}]'
MODELS = {
    "mask": f'latency_us = 4000\n{INPUT}\noutputs = [{{ name = "mask", shape = [1, {SIZE}, {SIZE}], fill = "copy" }}]',
    "light": f'latency_us = 2000\n{INPUT}\noutputs = [{{ name = "light", shape = [1, 1], fill = "sum" }}]',
    "grid": f'latency_us = 3000\n{INPUT}\noutputs = [{{ name = "grid", shape = [{SIZE}, {SIZE}], fill = "index" }}]',
}


@dataclass(frozen=True)
class Seen:
    """What is known of a frame."""

    number: int
    column: float  # where the bright square is, in pixels
    light: float


async def camera() -> AsyncIterator[tuple[int, NDArray[np.uint8]]]:
    """A bright square that moves to the right, a pixel a frame."""
    for number in range(FRAMES):
        frame = np.full((SIZE, SIZE, 3), 20, np.uint8)
        frame[20:30, number : number + 10] = 220
        await anyio.lowlevel.checkpoint()
        yield number, frame


def prepare(numbered: tuple[int, NDArray[np.uint8]]) -> tuple[int, NDArray[np.float32]]:
    """Ordinary code, which a thread does."""
    number, frame = numbered
    return number, np.ascontiguousarray(frame.transpose(2, 0, 1)[None], np.float32) / np.float32(20)


class Observer:
    """The three models."""

    def __init__(self, models: list[aa.Model]) -> None:
        self.models = models

    async def look(self, numbered: tuple[int, NDArray[np.float32]]) -> tuple[int, list[NDArray[np.float32]]]:
        number, frame = numbered
        return number, await together(lambda model: model(frame), self.models)


def fuse(numbered: tuple[int, list[NDArray[np.float32]]]) -> Seen:
    """The answers of all three models make one statement: the columns of the grid where the mask is bright."""
    number, (mask, light, grid) = numbered
    columns = grid[mask[0] > BRIGHT] % SIZE
    return Seen(number, float(columns.mean()), float(light.item()))


async def main() -> bool:
    async with aa.open_device(0, backend="sim") as npu:
        models = await together(lambda name: npu.load_model(MODELS[name].encode(), name=name), MODELS)
        pipeline = aa.Pipeline(
            aa.Stage(prepare, thread=True),
            aa.Stage(Observer(models).look, concurrency=3),  # frames on the device at the same time
            aa.Stage(fuse, thread=True),
        )
        async with pipeline:
            seen = [one async for one in pipeline.map(camera())]
            statistics = pipeline.statistics()

    for stage in statistics.stages:
        print(f"{stage.name:8} {stage.done} frames, busy for {1e3 * stage.busy_seconds:.0f} ms")
    print(f"the square moved from column {seen[0].column} to {seen[-1].column}, in {len(seen)} frames")
    moves = [(one.number, one.column) for one in seen] == [(number, number + 4.5) for number in range(FRAMES)]
    light = 3.0 * (SIZE * SIZE - 100 + 100 * 11)  # three channels, a square of 100 pixels that are 11 times as bright
    return moves and all(np.isclose(one.light, light) for one in seen)


if __name__ == "__main__":
    run(main, __doc__)
