# SPDX-License-Identifier: Apache-2.0
"""What is dropped without being closed, or outlives its device, is named; in debug mode with its maker."""

from __future__ import annotations

import asyncio
import gc
import warnings
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend as aa

pytestmark = pytest.mark.anyio

COPY = """
inputs = [{ name = "x", shape = [2, 8] }]
outputs = [{ name = "y", shape = [2, 8], fill = "copy" }]
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # the loop has no part in it


async def dropped_stream(npu: aa.Device) -> str:
    stream = await npu.create_stream()
    await stream.memset(npu.empty(8, "uint8"), 0)
    with pytest.warns(ResourceWarning, match="unclosed <Stream") as caught:
        del stream
    return "\n".join(str(warning.message) for warning in caught)


async def test_a_dropped_stream(npu: aa.Device) -> None:
    assert "made at" not in await dropped_stream(npu)


@pytest.mark.usefixtures("debugging")
async def test_a_dropped_stream_in_debug_mode(npu: aa.Device) -> None:
    warning = await dropped_stream(npu)
    assert ", 0 in flight>, made at" in warning
    assert "stream = await npu.create_stream()" in warning
    assert warning.count("unclosed") == 1


@pytest.mark.usefixtures("debugging")
async def test_a_dropped_model_in_debug_mode(npu: aa.Device, tmp_path: Path) -> None:
    (tmp_path / "copy.toml").write_text(COPY)
    model = await npu.load_model(tmp_path / "copy.toml")
    with pytest.warns(ResourceWarning, match=r"unclosed <Model copy\.toml on device 0>, made at") as caught:
        del model
    assert len(caught) == 1  # not its stream as well
    assert 'model = await npu.load_model(tmp_path / "copy.toml")' in str(caught[0].message)


@pytest.mark.usefixtures("debugging")
async def test_a_dropped_device_in_debug_mode() -> None:
    npu = await aa.open_device(1, backend="sim")
    opened = npu._opened
    with pytest.warns(ResourceWarning, match=r"unclosed <Device 1 \(sim\)>, made at") as caught:
        del npu
    assert 'npu = await aa.open_device(1, backend="sim")' in str(caught[0].message)
    await anyio.to_thread.run_sync(opened.release)


async def test_what_is_closed_or_never_came_about_is_not_warned_of(npu: aa.Device, sim: Any, tmp_path: Path) -> None:
    (tmp_path / "copy.toml").write_text(COPY)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with npu.create_stream(), npu.load_model(tmp_path / "copy.toml"):
            pass
        sim.fail_call("aclrtCreateStreamWithConfig")
        with pytest.raises(aa.AclError):
            await npu.create_stream()
        sim.fail_call("aclrtCreateStreamWithConfig")
        with pytest.raises(aa.AclError):
            await npu.load_model(tmp_path / "copy.toml")
        with pytest.raises(FileNotFoundError):
            await npu.load_model(tmp_path / "missing.toml")
        sim.fail_call("aclrtSetDevice")
        with pytest.raises(aa.AclError):
            await aa.open_device(1, backend="sim")
        gc.collect()


async def test_pinned_memory_that_outlives_its_device(debugging: Any, reports: Any) -> None:
    async with aa.open_device(1, backend="sim") as npu:
        kept = [await npu.pinned(1000, "uint8") for _ in range(3)]
        kept.append(await npu.pinned((2, 4), "float32"))
        dropped = await npu.pinned(77, "uint8")
        del dropped
    report = await reports.wait("device 1 is closed, and pinned memory of it is still in use: 3032 bytes")
    assert "3000 bytes in 3 x <PinnedBuffer uint8[1000] on device 1>, made at" in report
    assert "32 bytes in 1 x <PinnedBuffer float32[2, 4] on device 1>, made at" in report
    assert 'kept = [await npu.pinned(1000, "uint8") for _ in range(3)]' in report
    assert "77" not in report
    assert len(kept) == 4


async def test_what_died_with_its_device_is_not_told(debugging: Any, reports: Any, sim: Any, tmp_path: Path) -> None:
    """Device buffers, those of a call that was given up among them."""
    (tmp_path / "copy.toml").write_text(COPY)
    async with aa.open_device(1, backend="sim") as npu, npu.load_model(tmp_path / "copy.toml") as model:
        kept = npu.empty(1000, "uint8")
        await model.stream.memset(kept, 0)
        with sim.hold(model.stream):
            calls = [asyncio.create_task(model(np.zeros((2, 8), "float32"))) for _ in range(2)]
            await asyncio.wait(calls, timeout=0)
            calls[0].cancel()
            await asyncio.wait(calls[:1])
        await calls[1]
        assert (calls[0].cancelled(), kept.nbytes) == (True, 1000)
    assert reports.texts == []


async def test_a_device_closes_although_a_dropped_stream_lives_on(npu: aa.Device) -> None:
    """As it does where warnings are errors, in the exception."""
    async with aa.open_device(1, backend="sim") as second:
        stream = await second.create_stream()
        model = await second.load_model(b'[[inputs]]\nname = "x"\nshape = [4]\n[[outputs]]\nname = "y"\nshape = [4]\n')
        with pytest.warns(ResourceWarning) as kept:
            del stream, model
        assert [type(warning.source) for warning in kept] == [aa.Stream, aa.Model]
    kept.clear()
