# SPDX-License-Identifier: Apache-2.0
"""Videos whose frames pass through preprocessing, detection, classification and, on the host, post-processing.

Written with the public API alone, as a program would write it. Frames of one video follow each other through the
stages; frames of several videos mix, and come out of each video in order.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import aioascend as aa
from aioascend.bench.staged import SHAPE, Request, sequential

__all__ = ["POST_SECONDS", "one_by_one", "play"]

POST_SECONDS = 0.041
IN_FLIGHT = 4  # frames that the device has at the same time: one per stage, and one that waits


@dataclasses.dataclass(frozen=True)
class Slot:
    """What a frame needs on the device: a stream, and a buffer before, between and behind the models."""

    stream: aa.Stream
    buffers: list[aa.DeviceBuffer]


async def play(
    npu: aa.Device, streams: Sequence[aa.Stream], models: Sequence[aa.Model], videos: Sequence[Sequence[Request]]
) -> list[float]:
    """Runs all frames of all videos; returns when each one was through, on the clock of time.perf_counter."""
    loop = asyncio.get_running_loop()
    slots: asyncio.Queue[Slot] = asyncio.Queue()
    for stream in streams:
        slots.put_nowait(Slot(stream, [npu.empty(SHAPE) for _ in range(len(models) + 1)]))

    async def frame(request: Request) -> float:
        slot = await slots.get()
        try:
            slot.stream.memcpy(slot.buffers[0], request.source)
            for model, x, y in zip(models, slot.buffers, slot.buffers[1:], strict=False):
                slot.stream.execute(model, [x], [y])
            await slot.stream.memcpy(request.result, slot.buffers[-1])
        finally:
            slots.put_nowait(slot)
        await loop.run_in_executor(host, post_process, request)
        return time.perf_counter()

    async def video(frames: Sequence[Request]) -> list[float]:
        return await asyncio.gather(*map(frame, frames))

    with ThreadPoolExecutor(1) as host:
        return sorted(when for times in await asyncio.gather(*map(video, videos)) for when in times)


async def one_by_one(npu: aa.Device, stream: aa.Stream, models: Sequence[aa.Model], frames: Sequence[Request]) -> None:
    """Each step of each frame is waited for before the next one."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as host:
        for request in frames:
            await sequential(npu, stream, models, [request])
            await loop.run_in_executor(host, post_process, request)


def post_process(_: Request) -> None:
    """Stands for native code that releases the GIL and has a core to itself."""
    time.sleep(POST_SECONDS)
