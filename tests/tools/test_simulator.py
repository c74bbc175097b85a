# SPDX-License-Identifier: Apache-2.0
"""Holding, stepping, time, counters and the timeline, as a test of user code would use them."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioascend
from aioascend import AclTimeoutError, ArgumentError
from aioascend.testing import LIVE_OBJECTS, Simulator
from tools.conftest import RunPython

pytestmark = pytest.mark.anyio


async def test_nothing_of_a_held_stream_runs(sim: Simulator) -> None:
    async with aioascend.open_device(0) as npu, npu.create_stream() as held, npu.create_stream() as free:
        buffer = npu.empty(64, "uint8")
        with sim.hold(held):
            waits = held.memset(buffer, 1)
            await free.memset(npu.empty(64, "uint8"), 2)
            assert not waits.done()
            assert held.in_flight == 1
        await waits


async def test_a_device_is_held_and_released_by_index_or_object(sim: Simulator) -> None:
    async with (
        aioascend.open_device(0) as npu,
        npu.create_stream() as stream,
        aioascend.open_device(1) as other,
    ):
        sim.hold(device=npu)
        waits = stream.memset(npu.empty(64, "uint8"), 1)
        async with other.create_stream() as free:
            await free.memset(other.empty(64, "uint8"), 2)
        assert not waits.done()
        sim.release(device=0)
        await waits


async def test_a_stream_is_held_and_released_by_its_handle(sim: Simulator) -> None:
    async with aioascend.open_device(0) as npu, npu.create_stream() as stream:
        sim.hold(stream.handle)
        waits = stream.memset(npu.empty(64, "uint8"), 1)
        with pytest.raises(AclTimeoutError) as caught:
            sim.wait_tasks(stream, 1, timeout=0)
        assert caught.value.code == 507046
        sim.release(stream.handle)
        await waits


@pytest.mark.parametrize("arguments", [{}, {"stream": 1, "device": 0}])
def test_hold_takes_a_stream_or_a_device(sim: Simulator, arguments: dict[str, int]) -> None:
    with pytest.raises(TypeError, match="either a stream or device="):
        sim.hold(**arguments)


async def test_step_lets_a_number_of_tasks_pass(sim: Simulator) -> None:
    async with aioascend.open_device(0) as npu, npu.create_stream() as stream:
        buffer = npu.empty(64, "uint8")
        sim.clear_timeline()
        with sim.hold(stream):
            last = [stream.memset(buffer, value) for value in range(3)][-1]
            sim.step(stream, 2)
            sim.wait_tasks(stream, 2)
            assert [record.kind for record in sim.timeline()] == ["memset", "memset"]
            assert sim.live("tasks") == 1
        await last


async def test_wait_blocked_sees_a_thread_that_synchronises(sim: Simulator, acl: ctypes.CDLL) -> None:
    codes = []
    async with aioascend.open_device(0) as npu, npu.create_stream() as stream:
        context, handle = ctypes.c_void_p(npu.context), ctypes.c_void_p(stream.handle)

        def synchronise() -> None:
            codes.append(acl.aclrtSetCurrentContext(context))
            codes.append(acl.aclrtSynchronizeStream(handle))

        buffer = npu.empty(64, "uint8")
        await stream.memset(buffer, 0)  # from here on submits reach the device at once
        with sim.hold(stream):
            stream.memset(buffer, 1)
            thread = threading.Thread(target=synchronise)
            thread.start()
            sim.wait_blocked(stream, 1)
            assert codes == [0]
        await asyncio.to_thread(thread.join)
    assert codes == [0, 0]


async def test_held_reports_leave_the_device_at_work(sim: Simulator) -> None:
    async with aioascend.open_device(0) as npu, npu.create_stream() as stream:
        with sim.hold_reports():
            waiting = asyncio.gather(stream.memset(npu.empty(64, "uint8"), 1))  # asks for a report
            await asyncio.to_thread(sim.wait_tasks, stream, 2)  # the memset and its report
            assert not waiting.done()
        await waiting


async def test_virtual_time_takes_what_the_profile_says(sim: Simulator, tmp_path: Path) -> None:
    profile = tmp_path / "slow.toml"
    profile.write_text('soc_name = "Ascend310P3"\nai_cores = 1\nh2d_gbps = 0.001\n', encoding="utf-8")
    sim.set_profile(profile)
    data = np.ones(10_000_000, np.uint8)
    durations = []
    with sim.virtual_time():
        async with aioascend.open_device(0) as npu, npu.create_stream() as stream:
            buffer = npu.empty_like(data)
            for _ in range(2):
                sim.clear_timeline()
                before = sim.now()
                await stream.memcpy(buffer, data)
                durations += [record.duration for record in sim.timeline() if record.kind == "memcpy_h2d"]
                assert sim.now() - before >= 10_000_000_000
    assert durations == [10.0, 10.0]


async def test_profiles_can_differ_between_devices(sim: Simulator, tmp_path: Path) -> None:
    profile = tmp_path / "small.toml"
    profile.write_text(f'soc_name = "Ascend310P3"\nai_cores = 1\nmemory_bytes = {1 << 30}\n', encoding="utf-8")
    sim.set_profile_directory(tmp_path)
    sim.set_profile("small", device=1)
    async with aioascend.open_device(0) as first, aioascend.open_device(1) as second:
        assert (await second.memory_info()).total == 1 << 30
        assert (await first.memory_info()).total != 1 << 30


def test_an_unknown_profile_is_named(sim: Simulator) -> None:
    with pytest.raises(ArgumentError, match="no-such-card"):
        sim.set_profile("no-such-card")


def test_number_of_devices(sim: Simulator) -> None:
    sim.set_device_count(5)
    assert aioascend.backend_info().devices == 5
    with pytest.raises(ArgumentError, match="65"):
        sim.set_device_count(65)
    sim.reset()
    assert aioascend.backend_info().devices == 2


async def test_calls_are_counted_by_function_and_thread(sim: Simulator) -> None:
    async with aioascend.open_device(0) as npu, npu.create_stream() as stream:
        buffer = npu.empty(64, "uint8")
        await stream.memset(buffer, 0)
        calls, here = sim.calls("aclrtMemsetAsync"), sim.calls_on_thread("aclrtMemsetAsync")
        launched = sim.callbacks_launched
        await stream.memset(buffer, 1)
        assert sim.calls("aclrtMemsetAsync") == calls + 1
        assert sim.calls_on_thread("aclrtMemsetAsync") == here + 1
        assert sim.callbacks_launched == launched + 1
        assert sim.calls_on_thread("aclrtProcessReport") == 0
        assert sim.calls("aclrtProcessReport") > 0
        assert sim.calls_on_thread("aclrtMemsetAsync", threading.get_ident()) == here + 1


@pytest.mark.parametrize("name", ["aclrtMemsetAsnyc", "printf", "aclsimReset", ""])
def test_misspelt_functions_are_not_counted_as_never_called(sim: Simulator, name: str) -> None:
    with pytest.raises(ValueError, match=f"no ACL function {name!r}"):
        sim.calls(name)
    with pytest.raises(ValueError, match=f"no ACL function {name!r}"):
        sim.calls_on_thread(name)
    with pytest.raises(ValueError, match=f"no ACL function {name!r}"):
        sim.fail_call(name)


async def test_live_objects_follow_what_is_open(sim: Simulator) -> None:
    async with aioascend.open_device(0) as npu:
        streams = sim.live("streams")
        async with npu.create_stream():
            assert sim.live("streams") == streams + 1
        assert sim.live("streams") == streams
    with pytest.raises(ValueError, match=f"'queues'.*{LIVE_OBJECTS[0]}"):
        sim.live("queues")


async def test_timeline_tells_what_ran(sim: Simulator) -> None:
    data = np.arange(100, dtype=np.uint8)
    async with aioascend.open_device(1) as npu, npu.create_stream() as stream:
        buffer = npu.empty_like(data)
        sim.clear_timeline()
        stream.memcpy(buffer, data)
        await stream.memcpy(np.empty_like(data), buffer)
        records = [record for record in sim.timeline() if record.kind.startswith("memcpy")]
        assert [record.kind for record in records] == ["memcpy_h2d", "memcpy_d2h"]
        assert [record.unit for record in records] == ["copy_in", "copy_out"]
        for record in records:
            assert (record.device, record.stream_id, record.nbytes, record.code) == (1, stream.id, 100, 0)
            assert record.queued_ns <= record.start_ns <= record.end_ns <= sim.now()
        assert records[0].end_ns <= records[1].start_ns


async def test_timeline_keeps_as_many_as_it_is_told(sim: Simulator) -> None:
    async with aioascend.open_device(0) as npu, npu.create_stream() as stream:
        buffer = npu.empty(64, "uint8")
        sim.clear_timeline()
        sim.set_timeline_capacity(3)
        for value in range(10):
            stream.memset(buffer, value)
        sim.wait_tasks(stream, 10)
        assert len(sim.timeline()) == 3
        sim.set_timeline_capacity(0)
        assert sim.timeline() == []
        await stream


async def test_timeline_longer_than_one_read_of_it(sim: Simulator) -> None:
    async with aioascend.open_device(0) as npu, npu.create_stream() as stream:
        buffer = npu.empty(64, "uint8")
        sim.clear_timeline()
        for _ in range(1000):
            stream.memset(buffer, 0)
        await stream
        assert sum(record.kind == "memset" for record in sim.timeline()) == 1000


STRICT = """
import asyncio, ctypes, aioascend, aioascend.testing
sim = aioascend.testing.simulator()
acl = ctypes.CDLL(sim.path)
sim.strict()

@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def forbidden(_):
    acl.aclrtSynchronizeDevice()

async def main():
    async with aioascend.open_device(0) as npu, npu.create_stream() as stream:
        acl.aclrtSetCurrentContext(ctypes.c_void_p(npu.context))
        acl.aclrtLaunchCallback(forbidden, None, 0, ctypes.c_void_p(stream.handle))
        await stream.memset(npu.empty(1, "uint8"), 0)

asyncio.run(main())
"""


def test_strict_mode_ends_the_process_on_a_call_in_a_callback(run_python: RunPython) -> None:
    done = run_python("-c", STRICT)
    assert done.returncode != 0
    assert "aclrtSynchronizeDevice was called inside a stream callback" in done.stderr


async def test_a_closed_stream_is_refused(sim: Simulator) -> None:
    async with aioascend.open_device(0) as npu:
        async with npu.create_stream() as stream:
            handle = stream.handle
        with pytest.raises(ArgumentError):
            sim.hold(handle)


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        ("step", (1, 0), "tasks must be a whole number, 1 to "),
        ("wait_tasks", (1, -1), "total must be a whole number, 0 to "),
        ("wait_tasks", (1, 1, -1.0), "timeout must be 0"),
        ("fail_task", (0,), "nth must be a whole number, 1 to "),
        ("fail_task", (1, 0), "code 0 means success"),
        ("fail_call", ("aclrtMalloc", 1, 0), "code 0 means success"),
        ("fail_call", ("aclrtMalloc", 1, 507000, 0), "times must be a whole number, 1 to "),
        ("delay_report", (-1.0,), "seconds must not be negative"),
        ("set_call_latency", ("aclrtMalloc", -1.0), "seconds must not be negative"),
        ("set_exception_delivery", ("soon",), "when must be one of 'eager', 'lazy', not 'soon'"),
        ("set_exception_stream", ("other",), "which must be one of 'launch', 'inner', not 'other'"),
        ("set_pageable_mode", ("fast",), "mode must be one of 'blocking', 'asynchronous', not 'fast'"),
        ("limit_memory", (0,), "nbytes must be a whole number, 1 to "),
        ("limit_streams", (-1,), "count must be a whole number, 1 to "),
        ("set_timeline_capacity", (-1,), "records must be a whole number, 0 to "),
    ],
)
def test_numbers_out_of_range(sim: Simulator, method: str, arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(sim, method)(*arguments)


NO_STREAM = "stream must be an aioascend.Stream, or the handle of a stream, not "
NO_DEVICE = "device must be an aioascend.Device, the index of one, or None for all, not "


@pytest.mark.parametrize("value", ["x", 1.5, True, [1]], ids=repr)
def test_what_is_no_stream_or_device_is_named(sim: Simulator, value: Any) -> None:
    for call in (
        lambda: sim.hold(value),
        lambda: sim.release(value),
        lambda: sim.step(value),
        lambda: sim.wait_tasks(value, 1),
        lambda: sim.wait_blocked(value),
        lambda: sim.fail_task(stream=value),
        lambda: sim.drop_callback(stream=value),
    ):
        with pytest.raises(TypeError, match=re.escape(f"{NO_STREAM}{value!r}")):
            call()
    for call in (
        lambda: sim.set_profile("instant", device=value),
        lambda: sim.hold(device=value),
        lambda: sim.release(device=value),
        lambda: sim.fail_task(device=value),
        lambda: sim.drop_callback(device=value),
        lambda: sim.delay_report(0, device=value),
        lambda: sim.hold_reports(device=value),
        lambda: sim.release_reports(device=value),
        lambda: sim.lose_device(value),
        lambda: sim.restore_device(value),
        lambda: sim.limit_memory(1, device=value),
        lambda: sim.limit_streams(1, device=value),
        lambda: sim.limit_events(1, device=value),
    ):
        with pytest.raises(TypeError, match=re.escape(f"{NO_DEVICE}{value!r}")):
            call()


def test_streams_and_devices_that_no_number_holds(sim: Simulator) -> None:
    """C would take the lower bits of them, and so another device."""
    for handle in (-1, 2**64 + 1):
        with pytest.raises(ValueError, match=re.escape(f"{NO_STREAM}{handle}")):
            sim.hold(handle)
    for index in (-2, 2**32):
        with pytest.raises(ValueError, match=re.escape(f"{NO_DEVICE}{index}")):
            sim.lose_device(index)


def test_a_stream_that_was_not_awaited_is_named(sim: Simulator) -> None:
    expected = pytest.raises(TypeError, match=r"not <open_device\(\.\.\.\): await it, or use async with>")
    with contextlib.closing(aioascend.open_device(0)) as opening, expected:
        sim.hold(device=opening)


def test_counts_that_are_no_numbers(sim: Simulator) -> None:
    with pytest.raises(TypeError, match=r"nth must be a whole number, 1 to .* not '1'"):
        sim.drop_callback("1")


def test_a_task_kind_that_is_none(sim: Simulator) -> None:
    with pytest.raises(ValueError, match=r"memcpy_h2d.*not 'copy'"):
        sim.fail_task(kind="copy")


@pytest.mark.parametrize("depth", [1, 3])
def test_a_queue_that_is_too_short_is_refused(sim: Simulator, depth: int) -> None:
    with pytest.raises(ArgumentError, match=str(depth)):
        sim.set_queue_depth(depth)
