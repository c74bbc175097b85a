# SPDX-License-Identifier: Apache-2.0
"""What has gone wrong for users of such runtimes elsewhere, as scenarios.

Those of pools, batchers and pipelines are with these; A08 and A15, of lifetimes and cancellation, with those.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend as aa
from aioascend.testing import Simulator
from runtime.outcomes import error_of

pytestmark = pytest.mark.anyio

COPY = b'[[inputs]]\nname = "x"\nshape = [4]\n[[outputs]]\nname = "y"\nshape = [4]\nfill = "copy"\n'
BLOCKING = (
    "aclrtSynchronizeStream",
    "aclrtSynchronizeStreamWithTimeout",
    "aclrtSynchronizeDevice",
    "aclrtSynchronizeEvent",
    "aclrtMalloc",
    "aclrtMallocHost",
    "aclrtFree",
    "aclrtFreeHost",
    "aclrtMemcpy",
    "aclrtMemset",
    "aclmdlLoadFromMem",
    "aclmdlUnload",
    "aclmdlExecute",
    "aclrtCreateStreamWithConfig",
    "aclrtDestroyStream",
    "aclrtSetDevice",
    "aclrtResetDevice",
)


class Rounds:
    """Counts how often the loop comes round."""

    def __init__(self) -> None:
        self.count = 0

    async def run(self) -> None:
        while True:
            self.count += 1
            await anyio.lowlevel.checkpoint()


async def test_a01_the_loop_goes_round_while_the_device_works(sim: Simulator, anyio_backend: object) -> None:
    slow = ("aclrtSetDevice", "aclmdlLoadFromMem", "aclrtCreateStreamWithConfig", "aclrtMalloc", "aclmdlUnload")
    rounds = Rounds()

    async def phase(action: Callable[[], Awaitable[Any]]) -> Any:
        before = rounds.count
        result = await action()
        assert rounds.count > before + 10  # a blocked loop comes round once or twice, a busy machine's more often
        return result

    for function in (*slow, "aclrtDestroyStream", "aclrtResetDevice"):
        sim.set_call_latency(function, 0.1)
    async with anyio.create_task_group() as group:
        group.start_soon(rounds.run)
        npu = await phase(lambda: aa.open_device(1, backend="sim").__aenter__())
        model = await phase(lambda: npu.load_model(COPY))
        stream = await phase(lambda: npu.create_stream().__aenter__())
        buffer = npu.empty(4, "float32")
        await phase(lambda: stream.memcpy(buffer, np.arange(4, dtype="float32")))
        for _ in range(8):
            await model(np.arange(4, dtype="float32"))
        with sim.hold(stream):
            for _ in range(600):  # more than the queue takes
                stream.memset(buffer, 0)
        await phase(model.close)
        await phase(stream.close)
        await phase(npu.close)
        group.cancel_scope.cancel()
    assert {name: sim.calls_on_thread(name) for name in BLOCKING if sim.calls_on_thread(name)} == {}


async def test_a02_one_failure_ends_one_request_and_nobody_hangs(npu: aa.Device, sim: Simulator) -> None:
    async with await npu.load_model(COPY) as model:
        await model(np.zeros(4, "float32"))
        sim.fail_task(kind="execute", nth=5, code=507048)
        answers: dict[int, Any] = {}

        async def request(number: int) -> None:
            try:
                answers[number] = await model(np.full(4, number, "float32"))
            except aa.AclError as error:
                answers[number] = error

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(request, number)
        failed = [number for number, answer in answers.items() if isinstance(answer, aa.AclError)]
        own = [number for number in failed if not isinstance(answers[number], aa.DependencyError)]
        assert len(own) == 1
        assert {answers[number].code for number in failed} == {507048}
        for number in range(20, 25):
            await request(number)
        for number in set(answers) - set(failed):
            assert (answers[number] == number).all()
        assert not set(range(20, 25)) & set(failed)


@pytest.mark.parametrize("delivery", ["eager", "lazy"])
async def test_a03_a_fault_is_never_taken_for_success(
    delivery: Any, npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    sim.set_exception_delivery(delivery)
    async with await npu.load_model(COPY) as model:
        x, y = npu.empty(4), npu.empty(4)
        target = np.full(4, 9, "float32")
        sim.fail_task(kind="execute", code=507015)
        with sim.hold(stream):
            copy_in = stream.memcpy(x, np.ones(4, "float32"))
            run = stream.execute(model, [x], [y])
            copy_out = stream.memcpy(target, y)
            elsewhere = other.memset(npu.empty(4), 0)
        assert await error_of(copy_in) is None
        failed = await error_of(run)
        assert isinstance(failed, aa.TaskError)
        assert failed.code == 507015
        assert "execute #2" in failed.where
        linked = await error_of(copy_out)
        assert isinstance(linked, aa.DependencyError)
        assert linked.__cause__ is failed
        assert (target == 9).all()
        assert await error_of(elsewhere) is None


async def test_a04_a_poisoned_device_is_left_alone_and_comes_back(sim: Simulator, anyio_backend: object) -> None:
    async with aa.open_device(0, backend="sim") as first, aa.open_device(1, backend="sim") as second:
        models = {npu: await npu.load_model(COPY) for npu in (first, second)}
        for model in models.values():
            await model(np.zeros(4, "float32"))
        sim.fail_task(device=0, kind="execute", nth=3, code=507014)
        reached = sim.calls("aclmdlExecuteAsync")
        good = 0

        async def request(number: int, npu: aa.Device) -> None:
            nonlocal good
            for _ in range(3):
                if npu.health().state == "failed":
                    npu = second
                try:
                    answer = await models[npu](np.full(4, number, "float32"))
                except aa.AclError as error:
                    if error.retry not in ("elsewhere", "gone"):
                        raise
                    if npu.health().state == "ok":
                        sim.lose_device(0, code=507014)  # the fault sticks
                    npu = second
                    continue
                assert (answer == number).all()
                good += 1
                return

        for number in range(30):
            await request(number, (first, second)[number % 2])
        assert good == 30
        assert sim.calls("aclmdlExecuteAsync") - reached <= 30 + 1 + 3
        assert {one.device: one.state for one in aa.health()} == {0: "failed", 1: "ok"}
        sim.restore_device(0)
        await first.reset()
        async with await first.load_model(COPY) as model:
            await request(1, first) if models[first] is model else await model(np.zeros(4, "float32"))
            with pytest.raises(ValueError, match="shape"):  # the caller's fault: nothing to be tried again
                await model(np.zeros(5, "float32"))


async def test_a10_any_host_memory_and_the_loop_is_not_held_up(
    npu: aa.Device, stream: aa.Stream, sim: Simulator
) -> None:
    sim.set_pageable_mode("blocking")
    data = np.arange(64, dtype="uint8")
    raw = np.zeros(65, "uint8")
    odd = raw[1:]
    odd[:] = data
    frozen = data.copy()
    frozen.setflags(write=False)
    pinned = await npu.pinned(64, "uint8")
    pinned.array[:] = data
    device = npu.empty(64, "uint8")
    before = npu.statistics()
    for source in (data.tobytes(), odd, frozen, pinned):
        await stream.memset(device, 0)
        await stream.memcpy(device, source)
        back = np.zeros(64, "uint8")
        await stream.memcpy(back, device)
        assert (back == data).all()
    after = npu.statistics()
    assert after.staged_copies - before.staged_copies == 3 + 4  # in: all but the pinned one; back: all
    assert after.staged_bytes - before.staged_bytes == 7 * 64
    copies = sim.calls("aclrtMemcpyAsync")
    with pytest.raises(ValueError, match="not contiguous"):
        stream.memcpy(device, np.zeros(128, "uint8")[::2])
    with pytest.raises(ValueError, match="64 bytes and src has 63"):
        stream.memcpy(device, data[1:])
    assert sim.calls("aclrtMemcpyAsync") == copies
    assert sim.calls_on_thread("aclrtSynchronizeStream") == 0


@pytest.mark.parametrize("instances", [1, 3])
async def test_a11_one_model_on_many_streams(instances: int, sim: Simulator, npu: aa.Device, tmp_path: Path) -> None:
    profile = tmp_path / "cores.toml"
    profile.write_text('name = "cores"\nai_cores = 8\n', encoding="utf-8")
    sim.set_profile(profile)
    text = b"latency_us = 2000\n" + COPY
    models = [await npu.load_model(text, name=f"copy-{index}") for index in range(instances)]
    streams = [await npu.create_stream() for _ in range(4)]

    async def request(number: int) -> None:
        nonlocal submitted
        x, y = buffers[number]
        stream = streams[number % len(streams)]
        stream.memcpy(x, np.full(4, number, "float32"))
        stream.execute(models[number % instances], [x], [y])
        answer = np.zeros(4, "float32")
        operation = stream.memcpy(answer, y)
        submitted += 1
        await operation
        assert (answer == number).all()

    submitted = 0
    buffers = [(npu.empty(4), npu.empty(4)) for _ in range(50)]
    for pair in buffers:
        for buffer in pair:
            await streams[0].memset(buffer, 0)
    sim.clear_timeline()
    sim.hold(device=npu)
    with sim.virtual_time():
        async with anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(request, number)
            while submitted < 50 or npu.health().queued:
                await anyio.lowlevel.checkpoint()
            sim.release(device=npu)
    runs = [task for task in sim.timeline() if task.kind == "execute"]
    assert len(runs) == 50
    at_once = [sum(a.start_ns <= b.start_ns < a.end_ns for a in runs) for b in runs]
    assert max(at_once) <= instances
    if instances == 3:
        assert max(at_once) >= 2
    for each in (*models, *streams):
        await each.close()


async def test_a12_a_long_operation_holds_up_no_other_stream(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    buffer, own = npu.empty(4, "uint8"), npu.empty(4, "uint8")
    await other.memset(own, 0)
    order = []
    with sim.hold(stream):
        long = stream.memset(buffer, 1)
        long.add_waiter(lambda _: None)
        for number in range(100):
            await other.memset(own, number)
            order.append(number)
        assert not long.done()
    await long
    assert order == list(range(100))
    assert sim.calls("aclrtSynchronizeDevice") == 0


async def test_a13_a_wait_that_cannot_be_satisfied(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    """An event exists only by being recorded, so neither a cycle nor a wait for what nobody records can be built."""
    buffer = npu.empty(4, "uint8")
    with pytest.raises(TypeError, match=r"Stream\.record"):
        aa.Event()
    with sim.hold(device=npu):
        first, second = stream.record(), other.record()
        stream.wait(second)
        stream.record(first)  # again, behind the wait: those who wait already go on meaning the old point
        other.wait(first)
        other.record(second)
        both = [stream.memset(buffer, 1), other.memset(buffer, 2)]
    assert [await error_of(operation) for operation in both] == [None, None]

    async with npu.create_stream() as third:  # what can happen: a stream that waits for one that is stuck
        sim.hold(stream)
        discarded = stream.memset(buffer, 3)
        other.wait(stream.record())
        stuck = other.memset(buffer, 4)
        with anyio.move_on_after(0.05) as limit:
            await stuck
        assert limit.cancelled_caught
        await third.memset(buffer, 5)
        assert await stream.abort()
        sim.release(stream)
        dependent = other.memset(buffer, 6) if stuck.cancelled() else stuck
        assert isinstance(await error_of(dependent), aa.DependencyError)
        assert isinstance(await error_of(discarded), aa.TaskError)
        await third.memset(buffer, 7)


@pytest.mark.parametrize("code", [0, 207000])
async def test_a14_an_abort_does_not_strand_those_that_wait(code: int, sim: Simulator, anyio_backend: object) -> None:
    async with aa.open_device(1, backend="sim") as npu:
        stream, other = await npu.create_stream(), await npu.create_stream()
        buffer = npu.empty(4, "uint8")
        await stream.memset(buffer, 0)
        sim.hold(stream)
        hung = stream.memset(buffer, 1)
        other.wait(stream.record())
        waiting = other.memset(buffer, 2)
        if code:
            sim.fail_call("aclrtStreamAbort", code=code, times=2)
        assert await stream.abort() is (code == 0)
        errors = [await error_of(hung), await error_of(waiting)]
        assert [type(error) for error in errors] == [aa.TaskError, aa.DependencyError]
        assert {error.code for error in errors if isinstance(error, aa.AclError)} == {107023}
        assert npu.health().orphaned_streams == (2 if code else 0)
        if not code:
            sim.release(stream)
            for each in (stream, other):
                await each.memset(buffer, 3)


async def test_a22_no_current_stream_or_device_leaks(sim: Simulator, anyio_backend: object) -> None:
    """Nothing is ambient: a stream is what a method is called on, and the thread's own context is put back."""
    acl = ctypes.CDLL(aa.backend_info("sim").path)
    async with aa.open_device(0, backend="sim") as first, aa.open_device(1, backend="sim") as second:
        assert acl.aclrtSetCurrentContext(ctypes.c_void_p(second.context)) == 0  # of foreign code on this thread

        def current() -> int | None:
            context = ctypes.c_void_p()
            assert acl.aclrtGetCurrentContext(ctypes.byref(context)) == 0
            return context.value

        sim.clear_timeline()
        sizes: dict[tuple[int, int], int] = {}

        async def task(npu: aa.Device, size: int) -> None:
            async with npu.create_stream() as outer, npu.create_stream() as inner:
                sizes[npu.index, outer.id] = size
                sizes[npu.index, inner.id] = size + 1
                for _ in range(20):
                    outer.memset(npu.empty(size, "uint8"), 1)
                    await anyio.lowlevel.checkpoint()
                    await inner.memset(npu.empty(size + 1, "uint8"), 1)
                    assert current() == second.context

        async with anyio.create_task_group() as group:
            group.start_soon(task, first, 10)
            group.start_soon(task, second, 20)
            group.start_soon(task, first, 30)
        seen = {(task.device, task.stream_id, task.nbytes) for task in sim.timeline() if task.kind == "memset"}
        assert seen == {(device, stream, size) for (device, stream), size in sizes.items()}


def cpu_ticks(prefix: str) -> int:
    """Processor time of the runtime's own threads so far."""
    total = 0
    for thread in os.listdir("/proc/self/task"):
        try:
            fields = Path(f"/proc/self/task/{thread}/stat").read_text(encoding="utf-8")
        except FileNotFoundError:  # a thread that has ended, which is none of those
            continue
        name, rest = fields.split("(", 1)[1].rsplit(") ", 1)
        if name.startswith(prefix):
            total += sum(int(value) for value in rest.split()[11:13])
    return total


async def test_a24_an_idle_report_thread_burns_nothing_and_errors_do_not_end_it(sim: Simulator, npu: aa.Device) -> None:
    async with aa.open_device(1, backend="sim") as second:
        streams = [await device.create_stream() for device in (npu, second) for _ in range(4)]
        threads = [one for one in os.listdir("/proc/self/task") if report_thread(one)]
        assert len(threads) == 2
        before, ticks = sim.calls("aclrtProcessReport"), cpu_ticks("aioascend-rep") + cpu_ticks("aioascend-work")

        def idle() -> None:
            event = threading.Event()
            while sim.calls("aclrtProcessReport") < before + 10:  # 0.5 s for each of the two
                event.wait(0.05)

        await anyio.to_thread.run_sync(idle)
        assert cpu_ticks("aioascend-rep") + cpu_ticks("aioascend-work") - ticks <= 5  # of some 50
        sim.fail_call("aclrtProcessReport", code=107019)
        sim.fail_call("aclrtProcessReport", nth=2, code=507899, times=5)
        for index in range(1000):
            stream = streams[index % len(streams)]
            await stream.memset(stream.device.empty(4, "uint8"), 1)
        assert {one.state for one in aa.health()} == {"ok"}
        for stream in streams:
            await stream.close()


def report_thread(thread: str) -> bool:
    try:
        return Path(f"/proc/self/task/{thread}/comm").read_text(encoding="utf-8").startswith("aioascend-rep")
    except FileNotFoundError:
        return False
