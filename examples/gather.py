# SPDX-License-Identifier: Apache-2.0
"""Two models at once: asyncio.gather, or a task group, over plain coroutines.

    python examples/gather.py [--loop asyncio|uvloop|trio]

The models are descriptions, which stand for models that do not exist yet, so this runs on the simulator. With `.om`
files in their place it is the program for an NPU.
"""

from __future__ import annotations

import asyncio

import anyio
import numpy as np
import sniffio

import aioascend as aa
from _loops import run
from aioascend.testing import simulator

DETECT = b"""
name = "detect"
latency_us = 100_000
inputs = [{ name = "page", shape = [1, 3, 64, 64] }]
outputs = [{ name = "boxes", shape = [1, 10, 4], fill = "index" }]
"""
CLASSIFY = b"""
name = "classify"
latency_us = 80_000
inputs = [{ name = "page", shape = [1, 3, 64, 64] }]
outputs = [{ name = "score", shape = [1, 1], fill = "sum" }]
"""


async def look(detect: aa.Model, classify: aa.Model, page: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """On asyncio and uvloop."""
    boxes, score = await asyncio.gather(detect(page), classify(page))
    return boxes, score


async def look_anywhere(detect: aa.Model, classify: aa.Model, page: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same with anyio's task group, which trio has as well."""
    answers: dict[str, np.ndarray] = {}

    async def ask(model: aa.Model) -> None:
        answers[model.name] = await model(page)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, detect)
        tasks.start_soon(ask, classify)
    return answers["detect"], answers["classify"]


async def main() -> bool:
    page = np.random.default_rng(1).random((1, 3, 64, 64), np.float32)
    sim = simulator("sim")
    async with aa.open_device(0, backend="sim") as npu:
        detect = await npu.load_model(DETECT, name="detect")
        classify = await npu.load_model(CLASSIFY, name="classify")
        sim.clear_timeline()
        gather = look_anywhere if sniffio.current_async_library() == "trio" else look
        boxes, score = await gather(detect, classify, page)

        runs = {task.name: task for task in sim.timeline() if task.kind == "execute"}
        first, second = runs["detect"], runs["classify"]
        shared = min(first.end_ns, second.end_ns) - max(first.start_ns, second.start_ns)
        took = max(first.end_ns, second.end_ns) - min(first.start_ns, second.start_ns)
        print(f"boxes {boxes.shape}, score {score.item():.1f} (numpy says {page.sum():.1f})")
        print(f"the models ran {took / 1e6:.0f} ms, {shared / 1e6:.0f} ms of it both at once")
    return bool(boxes.shape == (1, 10, 4) and np.isclose(score.item(), page.sum()) and shared > 0)


if __name__ == "__main__":
    run(main, __doc__)
