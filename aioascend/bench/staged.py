# SPDX-License-Identifier: Apache-2.0
"""Requests of three stages, copy in, run, copy out: one after the other, and overlapping on several streams.

What follows is written with the public API alone, as a program would write it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

import aioascend as aa
from aioascend.testing import simulator

__all__ = [
    "SHAPE",
    "Request",
    "check",
    "description",
    "make_requests",
    "overlapping",
    "sequential",
    "serving",
    "warm_up",
]

SHAPE = (1, 1000)
"""Of every tensor, float32: so small that computing takes no time, and what the profile says is all there is."""


@dataclasses.dataclass(frozen=True)
class Request:
    """What is sent in, and where the answer goes."""

    source: NDArray[np.float32]
    result: NDArray[np.float32]


# --- the programs ---


async def sequential(
    npu: aa.Device, stream: aa.Stream, models: Sequence[aa.Model], requests: Iterable[Request]
) -> None:
    """One step after the other: each is waited for before the next one is submitted."""
    buffers = [npu.empty(SHAPE) for _ in range(len(models) + 1)]
    for request in requests:
        await stream.memcpy(buffers[0], request.source)
        for model, x, y in zip(models, buffers, buffers[1:], strict=False):
            await stream.execute(model, [x], [y])
        await stream.memcpy(request.result, buffers[-1])


async def overlapping(
    npu: aa.Device,
    lanes: Sequence[tuple[aa.Stream, aa.Model]],
    requests: Iterable[Request],
    per_stream: int = 2,
) -> None:
    """Whichever stream is through with a request takes the next one.

    With two coroutines on each stream the device has the next request already when one is done; with one, the stream
    stands still until the host has heard of it.
    """
    waiting = iter(requests)

    async def serve(stream: aa.Stream, model: aa.Model) -> None:
        x, y = npu.empty(SHAPE), npu.empty(SHAPE)
        for request in waiting:
            stream.memcpy(x, request.source)
            stream.execute(model, [x], [y])
            await stream.memcpy(request.result, y)

    await asyncio.gather(*(serve(stream, model) for _ in range(per_stream) for stream, model in lanes))


async def serving(model: aa.Model, requests: Iterable[Request], coroutines: int) -> None:
    """So many coroutines call the model, each with one request after the other."""
    waiting = iter(requests)

    async def client() -> None:
        for request in waiting:
            request.result[:] = await model(request.source)

    await asyncio.gather(*(client() for _ in range(coroutines)))


async def warm_up(npu: aa.Device, lanes: Sequence[tuple[aa.Stream, aa.Model]]) -> None:
    """Brings in the memory for all of them, and each model's first run on a second stream; takes simulated time only.

    In that first run the runtime learns that the model is shared; it waits for more than it has to (docs/models.md).
    """
    with simulator().virtual_time():
        await overlapping(npu, lanes, make_requests(4 * len(lanes)))


# --- what they run on ---


def description(name: str) -> bytes:
    """A model of this name, whose answer is the sum of its input; its latency is up to the device's profile."""
    tensor = f'dtype = "float32", shape = {list(SHAPE)}'
    text = f'''
name = "{name}"
inputs = [{{ name = "x", {tensor} }}]
outputs = [{{ name = "y", {tensor}, fill = "sum" }}]
'''
    return text.encode()


def make_requests(count: int) -> list[Request]:
    """Requests with different inputs."""
    return [
        Request(np.full(SHAPE, number % 100, "float32"), np.full(SHAPE, np.nan, "float32")) for number in range(count)
    ]


def check(requests: Iterable[Request], models: int = 1) -> None:
    """Raises when an answer is not that of so many models in a row: a benchmark of wrong answers says nothing."""
    for request in requests:
        expected = request.source.sum() * float(SHAPE[1]) ** (models - 1)
        if not np.allclose(request.result, expected):
            raise RuntimeError(f"the answer to {request.source[0, 0]} is {request.result[0, 0]}, not {expected}")
