# SPDX-License-Identifier: Apache-2.0
"""What type checkers make of pipelines. Checked by mypy with the package; never run."""

from __future__ import annotations

from pathlib import Path

import anyio
from typing_extensions import assert_type

import aioascend as aa


async def read(path: Path) -> bytes:
    return await anyio.Path(path).read_bytes()


def decode(data: bytes) -> list[float]:
    return list(data)


async def detect(image: list[float], stream: aa.Stream) -> int:
    await stream
    return len(image)


async def mapped(npu: aa.Device) -> None:
    stages = aa.Stage(decode, thread=True), aa.Stage(detect, streams=npu, concurrency=2)
    async with aa.Pipeline(read, *stages) as pipeline:
        assert_type(pipeline, aa.Pipeline[Path, int])
        assert_type(await pipeline(Path()), int)
        async for count in pipeline.map([Path()], ordered=False):
            assert_type(count, int)
        async for either in pipeline.map([Path()], on_error="collect"):
            if isinstance(either, aa.Failed):
                assert_type(either.item, Path)
                assert_type(either.error, Exception)
            else:
                assert_type(either, int)
        assert_type(pipeline.map([Path()]), aa.PipelineResults[int])
        pipeline.map(["a path as text"])  # type: ignore[list-item]


def mistaken(npu: aa.Device) -> None:
    aa.Pipeline(read, read)  # type: ignore[misc]
    aa.Stage(detect)  # type: ignore[arg-type]
    aa.Stage(read, streams=npu)  # type: ignore[arg-type]
    aa.Stage(decode)  # type: ignore[arg-type]
