# SPDX-License-Identifier: Apache-2.0
"""What type checkers make of openings. Checked by mypy with the package; never run."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from typing_extensions import assert_type

import aioascend as aa


async def entered(npu: aa.Device) -> None:
    async with aa.open_device(0) as device, npu.create_stream() as stream, npu.wrap_stream(1) as wrapped:
        assert_type(device, aa.Device)
        assert_type(stream, aa.Stream)
        assert_type(wrapped, aa.Stream)
    async with npu.load_model("detect.om") as model, await npu.load_model(b"") as other:
        assert_type(model, aa.Model)
        assert_type(other, aa.Model)


async def awaited(npu: aa.Device) -> None:
    assert_type(await aa.open_device(0), aa.Device)
    assert_type(await npu.load_model("detect.om"), aa.Model)
    assert_type(await npu.pinned(4), aa.PinnedBuffer)


async def in_tasks(npu: aa.Device) -> None:
    assert_type(await asyncio.create_task(npu.create_stream()), aa.Stream)
    model, stream = await asyncio.gather(npu.load_model("detect.om"), npu.create_stream())
    assert_type(model, aa.Model)
    assert_type(stream, aa.Stream)
    coroutine: Coroutine[object, object, aa.Model] = npu.load_model("detect.om")
    assert_type(await coroutine, aa.Model)
    call: Coroutine[Any, Any, Any] = model([1.0])
    await call


def forgotten(npu: aa.Device) -> None:
    npu.create_stream().record()  # type: ignore[attr-defined]
    npu.load_model("detect.om").execute([], [])  # type: ignore[attr-defined]
