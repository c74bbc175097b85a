# SPDX-License-Identifier: Apache-2.0
"""The runtime on libraries that lack newer functions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend as aa
from aioascend._backend import load_backend
from aioascend.testing import Simulator
from runtime.outcomes import device_without

pytestmark = pytest.mark.anyio

REPORTS = ("aclrtSubscribeReport", "aclrtUnSubscribeReport", "aclrtProcessReport", "aclrtLaunchCallback")


@pytest.fixture(
    params=[
        REPORTS,
        (*REPORTS, "aclrtSynchronizeEventWithTimeout"),
        ("aclrtCreateEventExWithFlag", "aclrtQueryEventStatus"),
        ("aclrtCreateStreamWithConfig", "aclrtPointerGetAttributes", "aclGetRecentErrMsg"),
        ("aclrtGetThreadLastTaskId", "aclrtStreamGetId", "aclrtExceptionInfoCallbackRegister"),
    ],
    ids=["no-reports", "no-event-timeout", "legacy-events", "no-config", "no-ids"],
)
async def old(request: pytest.FixtureRequest, anyio_backend: object) -> AsyncIterator[aa.Device]:
    async with await device_without(*request.param) as device:
        yield device


async def test_the_whole_path(old: aa.Device) -> None:
    async with old.create_stream() as stream, old.create_stream() as other:
        source = np.arange(100, dtype="float32")
        target = np.zeros_like(source)
        buffer = old.empty_like(source)
        stream.memcpy(buffer, source)
        event = stream.record()
        other.wait(event)
        await other.memcpy(target, buffer)
        np.testing.assert_array_equal(target, source)
        await event
        assert event.done()

        async def many() -> None:
            for value in range(50):
                await stream.memset(buffer, value)

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(many)


async def test_failures_and_cancellation(old: aa.Device, sim: Simulator) -> None:
    async with old.create_stream() as stream:
        buffer = old.empty(16, "uint8")
        await stream.memset(buffer, 0)
        with sim.hold(stream):
            with anyio.move_on_after(0):
                await stream.memset(buffer, 1)
        await stream
        sim.fail_task(device=1, kind="memset", code=507015)
        with pytest.raises(aa.AclError) as caught:
            await stream.memset(buffer, 2)
        assert caught.value.code == 507015
        await stream.memset(buffer, 3)


async def test_what_the_runtime_cannot_do_without_is_refused() -> None:
    library = load_backend("sim").library
    with pytest.raises(ValueError, match=r"aclrtMalloc.*required"):
        library.without("aclrtMalloc")
    with pytest.raises(ValueError, match="not an ACL function"):
        library.without("aclrtFrobnicate")


def test_no_models_without_the_functions_for_them(anyio_backend: Any) -> None:
    async def main() -> None:
        async with await device_without("aclmdlExecuteAsync") as device:
            with pytest.raises(aa.UnsupportedError, match="aclmdlExecuteAsync"):
                await device.load_model(b"[[inputs]]")

    anyio.run(main)
