# SPDX-License-Identifier: Apache-2.0
"""Two services share a device fairly: one floods it, the other is still answered at once.

    python examples/fair_share.py [--loop asyncio|uvloop|trio]

An archive has hundreds of pages looked at, all at once. A camera asks now and then, and somebody waits for the answer.
First come, first served, the camera would wait for the whole archive. A scheduler that lets the archive have half of
the slots, and no more, keeps the others free.

The model is a description (docs/simulator/model-description.md).
"""

from __future__ import annotations

import anyio
import anyio.lowlevel
import numpy as np

import aioascend as aa
from _loops import run

PAGES, PICTURES = 120, 6
MODEL = b"""
latency_us = 3000
inputs = [{ name = "image", shape = [1, 16] }]
outputs = [{ name = "sum", shape = [1, 1], fill = "sum" }]
"""


class Services:
    """An archive and a camera, which call the same scheduler."""

    def __init__(self, scheduler: aa.Scheduler[aa.Model]) -> None:
        self.scheduler = scheduler
        self.archived = 0  # pages done
        self.overtaken: list[int] = []  # how many pages were done while a picture waited
        self.wrong = 0

    async def ask(self, kind: str, number: int) -> None:
        image = np.full((1, 16), number, np.float32)
        answer = await self.scheduler(image, kind=kind)
        self.wrong += answer.item() != 16 * number

    async def page(self, number: int) -> None:
        await self.ask("archive", number)
        self.archived += 1

    async def camera(self) -> None:
        for number in range(PICTURES):
            before = self.archived
            await self.ask("camera", number)
            self.overtaken.append(self.archived - before)

    async def work(self) -> None:
        """The archive first, then the camera, on top of it."""
        async with anyio.create_task_group() as tasks:
            for number in range(PAGES):
                tasks.start_soon(self.page, number)
            while self.archived < 4:
                await anyio.lowlevel.checkpoint()
            tasks.start_soon(self.camera)


async def run_services(npu: aa.Device, share: float) -> Services:
    shares = {"archive": share, "camera": 1.0}
    async with (
        npu.load_model(MODEL, name="look") as model,
        aa.Scheduler([model], concurrency=4, kinds=shares) as scheduler,
    ):
        services = Services(scheduler)
        await services.work()
    return services


async def main() -> bool:
    async with aa.open_device(0, backend="sim") as npu:
        flooded = await run_services(npu, share=1.0)
        fair = await run_services(npu, share=0.5)
    for name, services in (("first come, first served", flooded), ("half of the slots", fair)):
        print(f"{name}: pages that went before each picture: {services.overtaken}")
    waited = max(fair.overtaken)
    return waited < 20 < max(flooded.overtaken) and flooded.wrong == fair.wrong == 0


if __name__ == "__main__":
    run(main, __doc__)
