# SPDX-License-Identifier: Apache-2.0
"""In debug mode an awaited stream that stands still is explained: what it waits for, there what that waits for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend as aa
from aioascend import _debug
from aioascend._debug.stalls import StallWatcher, StreamState, Task, Wait, chain
from aioascend.testing import Simulator

pytestmark = pytest.mark.anyio

COPY = """
inputs = [{ name = "x", shape = [2, 8] }]
outputs = [{ name = "y", shape = [2, 8], fill = "copy" }]
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # the loop has no part in it


@pytest.fixture(autouse=True)
def impatient(debugging: _debug.Settings) -> None:
    debugging.stall = 0.05


async def report_while_awaited(reports: Any, operation: aa.Operation, release: Any, *phrases: str) -> str:
    """Awaits the operation, which stands still until the report has come."""
    found: list[str] = []

    async def wait() -> None:
        found.append(await reports.wait(*phrases))
        release()

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await operation
    return found[0]


async def test_a_stream_that_waits_for_another_one(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator, reports: Any, tmp_path: Path
) -> None:
    (tmp_path / "copy.toml").write_text(COPY)
    async with await npu.load_model(tmp_path / "copy.toml") as model:
        x, y = npu.empty((2, 8)), npu.empty((2, 8))
        await stream.memset(x, 0)
        await other.memset(y, 0)
        sim.hold(stream)
        stream.execute(model, [x], [y])
        other.wait(stream.record())
        target = np.zeros((2, 8), "float32")
        report = await report_while_awaited(
            reports, other.memcpy(target, y), lambda: sim.release(stream), f"stream {other.id} is awaited", "wait #2"
        )
    first, *links = [line for line in report.splitlines() if line.startswith("stream")]
    assert first.startswith(f"stream {other.id} is awaited and has made no progress for 0.")
    assert links == [
        f"stream {other.id}: wait #2 waits on the device for record #3 of stream {stream.id}; submitted at",
        f"stream {stream.id}: execute #2 (copy.toml) is the first that the device has not reported; submitted at",
    ]
    assert "stream.execute(model, [x], [y])" in report
    assert "other.wait(stream.record())" in report


async def test_it_is_reported_once_and_again_after_progress(
    npu: aa.Device, stream: aa.Stream, sim: Simulator, reports: Any
) -> None:
    buffer = npu.empty(8, "uint8")
    await stream.memset(buffer, 0)
    for position in (2, 3):
        sim.hold(stream)
        operation = stream.memset(buffer, 1)
        phrase = f"memset #{position} is the first that the device has not reported"
        await report_while_awaited(reports, operation, lambda: sim.release(stream), phrase)
        assert len(reports.about(phrase)) == 1


async def test_what_nobody_awaits_stalls_nobody(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator, reports: Any
) -> None:
    buffer = npu.empty(8, "uint8")
    await stream.memset(buffer, 0)
    await other.memset(buffer, 0)
    sim.hold(stream)
    sim.hold(other)
    stream.memset(buffer, 1)
    await report_while_awaited(
        reports, other.memset(buffer, 2), lambda: sim.release(other), f"stream {other.id}: memset #2"
    )
    assert reports.about(f"stream {stream.id}: memset #2") == []
    sim.release(stream)


async def test_memory_that_is_never_allocated(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator, reports: Any
) -> None:
    """The worker, which allocates, waits for room in the queue of a stream that is held."""
    await other.memset(npu.empty(8, "uint8"), 0)
    sim.set_queue_depth(4)
    sim.hold(stream)
    array, large = np.zeros(1 << 20, "uint8"), npu.empty(1 << 20, "uint8")
    copies = [stream.memcpy(large, array) for _ in range(6)]  # by the worker, as they are large
    await anyio.to_thread.run_sync(sim.wait_blocked, stream)
    operation = other.memset(npu.empty(1 << 16, "uint8"), 1)
    report = await report_while_awaited(
        reports, operation, lambda: sim.release(stream), f"stream {other.id}: memset #2"
    )
    assert f"stream {other.id}: memset #2 waits on the host: its memory has not been allocated yet" in report
    assert 'operation = other.memset(npu.empty(1 << 16, "uint8"), 1)' in report
    assert f"stream {stream.id}: memcpy #5 is being launched, and the worker waits in that call" in report
    await copies[-1]


async def test_a_record_that_waits_on_the_host_itself(sim: Simulator, reports: Any, anyio_backend: object) -> None:
    async with (
        aa.open_device(1, backend="sim", flight_limit=2) as npu,
        npu.create_stream() as first,
        npu.create_stream() as second,
    ):
        buffer = npu.empty(8, "uint8")
        await first.memset(buffer, 0)
        await second.memset(buffer, 0)
        sim.hold(first)
        for _ in range(3):
            first.memset(buffer, 1)
        second.wait(first.record())
        report = await report_while_awaited(
            reports, second.memset(buffer, 2), lambda: sim.release(first), f"stream {second.id}: wait #2"
        )
    assert (
        f"stream {second.id}: wait #2 waits on the host: record #5 of stream {first.id} waits on the host itself"
        in report
    )
    assert f"stream {first.id}: memset #2 is the first that the device has not reported" in report


async def test_a_stream_of_somebody_else(npu: aa.Device, stream: aa.Stream, sim: Simulator, reports: Any) -> None:
    wrapped = await npu.wrap_stream(stream.handle)
    buffer = npu.empty(8, "uint8")
    await wrapped.memset(buffer, 0)
    sim.hold(stream)
    report = await report_while_awaited(
        reports, wrapped.memset(buffer, 1), lambda: sim.release(stream), "what else its owner runs on this stream"
    )
    assert "memset #2 is the first that the device has not reported" in report
    await wrapped.close()


# --- the explanations, without a device ---


def state(key: int, **changes: Any) -> StreamState:
    values: dict[str, Any] = {
        "key": key, "id": key, "foreign": False, "retired": 0, "issued": 1, "wanted": 1, "idle": False,
        "held": "", "held_for": (0, 0), "tasks": {1: Task("memset #1", None)},
    }  # fmt: skip
    return StreamState(**values | changes)


def explained(first: StreamState, *others: StreamState) -> list[str]:
    return [text for _, text in chain({state.key: state for state in (first, *others)}, first)]


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        ("full", "waits on the host: the device has as many of this stream as it may"),
        ("launch", "is being launched: the worker waits in that call, as for room in the queue of the device"),
        ("model", "waits on the host: a run that learns the sizes of outputs comes before it"),
        ("memory", "waits on the host: its memory has not been allocated yet"),
        ("worker", "waits on the host: the worker has not come to it yet"),
        ("", "is on its way"),
    ],
)
def test_why_it_waits_on_the_host(held: str, reason: str) -> None:
    assert explained(state(1, issued=0, held=held)) == [f"stream 1: memset #1 {reason}"]


def test_a_wait_behind_work_that_may_be_to_blame() -> None:
    waits = (Wait(3, source=2, source_seq=7, over=False),)
    first = state(1, issued=4, wanted=4, waits=waits, tasks={3: Task("wait #3", None)})
    second = state(2, issued=7, tasks={1: Task("memset #1", None), 7: Task("record #7", None)})
    waiting, blamed = explained(first, second)
    assert waiting.startswith("stream 1: wait #3 waits on the device for record #7 of stream 2")
    assert waiting.endswith(", unless it is one of the 2 operations before it that the device is still at")
    assert blamed == "stream 2: memset #1 is the first that the device has not reported"


def test_a_report_that_is_owed_and_streams_that_are_gone() -> None:
    assert explained(state(1, idle=True)) == ["stream 1: memset #1 is done, but its report has not come"]
    waiting = state(-1, waits=(Wait(1, source=9, source_seq=4, over=False),), tasks={})
    assert explained(waiting) == [
        "a stream without id (-0x1): operation #1 waits on the device for record #4 of a stream that is closed",
        "a stream that is closed",
    ]


def test_streams_behind_the_same_one_are_not_told_twice() -> None:
    class Device:
        def _stream_states(self) -> None:
            return None

    watcher = StallWatcher(Device())
    waits = (Wait(1, source=2, source_seq=1, over=False),)
    states = {1: state(1, waits=waits), 2: state(2)}
    assert list(watcher.look(states, 100.0)) == []
    (report,) = watcher.look(states, 200.0)
    assert report.startswith("stream 1 is awaited and has made no progress for 100 s:\nstream 1: memset #1 waits on")
    assert list(watcher.look(states, 300.0)) == []
    states[2] = state(2, retired=1, issued=2, wanted=2, tasks={2: Task("memset #2", None)})
    assert list(watcher.look(states, 400.0)) == []
    (report,) = watcher.look(states, 500.0)
    assert report.startswith("stream 2 is awaited")
