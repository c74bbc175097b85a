# SPDX-License-Identifier: Apache-2.0
"""Debug mode: what turns it on, what is counted, and who keeps a loop from coming round."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend as aa
from aioascend import _debug, _native, debug
from aioascend.testing import Simulator

pytestmark = pytest.mark.anyio


COPY = """
inputs = [{ name = "x", shape = [2, 8] }]
outputs = [{ name = "y", shape = [2, 8], fill = "copy" }]
"""


# --- the switch ---


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, _debug.Settings(False, 0.1, 10.0)),
        ({"AIOASCEND_DEBUG": ""}, _debug.Settings(False, 0.1, 10.0)),
        ({"AIOASCEND_DEBUG": "0"}, _debug.Settings(False, 0.1, 10.0)),
        ({"AIOASCEND_DEBUG": "1"}, _debug.Settings(True, 0.1, 10.0)),
        (
            {"AIOASCEND_DEBUG": "1", "AIOASCEND_DEBUG_SLOW": "0.5", "AIOASCEND_DEBUG_STALL": "60"},
            _debug.Settings(True, 0.5, 60.0),
        ),
    ],
)
def test_settings(environment: dict[str, str], expected: _debug.Settings) -> None:
    assert _debug.Settings.from_environment(environment) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AIOASCEND_DEBUG", "yes"),
        ("AIOASCEND_DEBUG_SLOW", "0"),
        ("AIOASCEND_DEBUG_SLOW", "-1"),
        ("AIOASCEND_DEBUG_STALL", "soon"),
        ("AIOASCEND_DEBUG_STALL", "nan"),
    ],
)
def test_settings_that_make_no_sense(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} must be .*, not '{value}'"):
        _debug.Settings.from_environment({name: value})


def test_it_is_off_by_default() -> None:
    assert not debug.enabled


# --- counters ---


async def test_counters_count(sim: Simulator, anyio_backend: object, tmp_path: Path) -> None:
    before = debug.counters()
    (tmp_path / "copy.toml").write_text(COPY)
    async with aa.open_device(1, backend="sim") as npu, npu.create_stream() as stream:
        opened = debug.counters()
        assert opened.devices == before.devices + 1
        assert opened.threads == before.threads + 2
        assert opened.streams == before.streams + 1
        buffer, pinned = npu.empty(1 << 20, "uint8"), await npu.pinned(64, "uint8")
        await stream.memset(buffer, 0)
        with sim.hold(stream):
            operations = [stream.memcpy(buffer, np.zeros(1 << 20, "uint8")), stream.memset(buffer, 1)]
            event = stream.record()
            held = debug.counters()
        assert held.tickets == before.tickets + 3
        assert held.events == before.events + 1
        assert held.device_blocks == before.device_blocks + 1
        assert held.pinned_blocks == before.pinned_blocks + 2  # one that the copy is staged in
        assert held.bridges == before.bridges + 1
        assert held.fds == before.fds + 1
        await event
        async with await npu.load_model(tmp_path / "copy.toml"):
            assert debug.counters().models == before.models + 1
            assert debug.counters().streams == before.streams + 4  # of the runs, and of the copies in and out
        assert debug.counters().tickets == before.tickets
        del operations, event, buffer, pinned


def test_a_closed_loop_gives_its_descriptor_back(sim: Simulator) -> None:
    """Although the latest operation of the stream, and so its bridge, lives on."""
    before, left = debug.counters(), os.listdir("/proc/self/fd")
    kept: list[Any] = []

    async def main() -> None:
        async with aa.open_device(0, backend="sim") as npu, npu.create_stream() as stream:
            kept.append(stream.memset(npu.empty(8, "uint8"), 0))
            await kept[0]

    asyncio.run(main())
    _native.forget_closed_loops()
    assert debug.counters().fds == before.fds
    assert len(os.listdir("/proc/self/fd")) == len(left)


# --- who blocks a loop ---


@pytest.mark.usefixtures("debugging")
async def test_a_blocking_call_on_the_loop_is_named_once(npu: aa.Device, reports: Any) -> None:
    for _ in range(2):
        npu._core.memory_info()
    (report,) = reports.about("aclrtGetMemInfo is called on the thread of an event loop")
    assert "test_a_blocking_call_on_the_loop_is_named_once" in report
    assert "npu._core.memory_info()" in report
    npu._core.memory_info()
    assert len(reports.about("aclrtGetMemInfo")) == 2  # another place


@pytest.mark.usefixtures("debugging")
async def test_a_blocking_call_elsewhere_is_not(npu: aa.Device, reports: Any) -> None:
    await npu.memory_info()
    await anyio.to_thread.run_sync(npu._core.memory_info)
    thread = threading.Thread(target=npu._core.memory_info)
    thread.start()
    thread.join(timeout=60)
    assert reports.about("is called on the thread") == []


@pytest.fixture
def acl() -> ctypes.CDLL:
    """AscendCL as foreign code uses it."""
    acl = ctypes.CDLL(aa.backend_info("sim").path)
    acl.aclrtSetCurrentContext.argtypes = acl.aclrtSynchronizeStream.argtypes = [ctypes.c_void_p]
    return acl


async def test_what_blocks_a_loop_is_shown_whoever_it_is(
    debugging: _debug.Settings, reports: Any, npu: aa.Device, stream: aa.Stream, sim: Simulator, acl: ctypes.CDLL
) -> None:
    debugging.slow = 0.02

    def foreign_code() -> None:
        acl.aclrtSetCurrentContext(npu.context)
        acl.aclrtSynchronizeStream(stream.handle)

    def release(report: str) -> None:
        if "foreign_code" in report:
            sim.release(stream)

    await stream  # the loop is known, and watched
    await stream.memset(npu.empty(8, "uint8"), 0)
    reports.upon = release
    sim.hold(stream)
    operation = stream.memset(npu.empty(8, "uint8"), 1)
    foreign_code()  # until the report
    (report,) = reports.about("an event loop has not come round for", "in foreign_code")
    assert "acl.aclrtSynchronizeStream(stream.handle)" in report
    assert "test_what_blocks_a_loop_is_shown_whoever_it_is" in report
    await operation


@pytest.mark.usefixtures("debugging")
async def test_an_address_that_is_not_there_yet(
    npu: aa.Device, stream: aa.Stream, reports: Any, sim: Simulator, full_queue: Callable[[], None]
) -> None:
    buffer = npu.empty(1 << 16, "uint8")  # the worker cannot come to it
    reports.upon = lambda report: full_queue()
    assert buffer.address
    (report,) = reports.about("buffer.address, which waits for the allocation (aclrtMalloc),")
    assert "assert buffer.address" in report


@pytest.fixture
async def full_queue(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> AsyncIterator[Callable[[], None]]:
    """The worker of the device waits for room in the stream's queue, until this is called."""
    sim.set_queue_depth(4)
    sim.hold(stream)
    array = np.zeros(1 << 20, "uint8")  # large, so that the worker submits it
    buffer = npu.empty(1 << 20, "uint8")
    copies = [stream.memcpy(buffer, array) for _ in range(6)]
    await anyio.to_thread.run_sync(sim.wait_blocked, stream)
    yield lambda: sim.release(stream)
    sim.release(stream)
    await copies[-1]


def test_a_place_is_told_once() -> None:
    once = _debug.Once()
    first, second = [_debug.stack_here() for _ in range(2)]
    there = _debug.stack_here()
    assert once.new(first, "a")
    assert not once.new(second, "a")
    assert once.new(first, "b")
    assert once.new(there, "a")
