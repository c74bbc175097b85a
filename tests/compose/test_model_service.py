# SPDX-License-Identifier: Apache-2.0
"""Many calls of one model at once: they overlap, get their own answers, and have a bounded amount on the device."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import aioascend as aa
from aioascend.testing import Simulator, TaskRecord
from compose.scene import COPY, SIZE, STAGE_NS, check_sums, full, set_stages, until

pytestmark = pytest.mark.anyio


async def call(model: aa.Model, value: float, answers: dict[float, Any] | None = None) -> None:
    answer = await model(full(value))
    assert (answer == value).all(), (value, answer)
    if answers is not None:
        answers[value] = answer


async def calls_at_once(model: aa.Model, count: int) -> None:
    async with anyio.create_task_group() as group:
        for value in range(count):
            group.start_soon(call, model, value)


def of_kind(records: list[TaskRecord], kind: str) -> list[TaskRecord]:
    return sorted((one for one in records if one.kind == kind), key=lambda one: one.start_ns)


# --- overlap ---


async def held_batch(npu: aa.Device, model: aa.Model, sim: Simulator, count: int) -> list[TaskRecord]:
    """The timeline of so many calls, all of which are there before the device begins."""
    with sim.virtual_time():
        await calls_at_once(model, count)  # so that the pools have what it takes
        with sim.hold(device=npu):
            await calls_at_once_held(npu, model, sim, count)
    return sim.timeline()


async def calls_at_once_held(npu: aa.Device, model: aa.Model, sim: Simulator, count: int) -> None:
    async with anyio.create_task_group() as group:
        for value in range(count):
            group.start_soon(call, model, value)
        await until(lambda: model.statistics().running == count and npu.health().queued == 0)
        sim.clear_timeline()
        sim.release(device=npu)


async def test_copies_of_one_call_overlap_with_the_run_of_another(
    npu: aa.Device, sim: Simulator, tmp_path: Path
) -> None:
    set_stages(sim, tmp_path)
    async with npu.load_model(COPY) as model:
        records = await held_batch(npu, model, sim, 8)
    ins, runs, outs = (of_kind(records, kind) for kind in ("memcpy_h2d", "execute", "memcpy_d2h"))
    assert len(ins) == len(runs) == len(outs) == 8
    for number in range(7):
        assert ins[number + 1].start_ns < runs[number].end_ns
        assert ins[number].end_ns <= runs[number].start_ns
        assert runs[number].end_ns <= outs[number].start_ns
    # Eight runs, the first copy in and the last copy out; and the first call, which was alone when it was made, is
    # copied out on the stream of the runs.
    assert outs[-1].end_ns - ins[0].start_ns == 11 * STAGE_NS


async def test_a_call_that_is_alone_uses_one_stream_and_no_event(npu: aa.Device, sim: Simulator) -> None:
    async with npu.load_model(COPY) as model:
        await call(model, 1)
        sim.clear_timeline()
        before = (sim.callbacks_launched, sim.calls("aclrtRecordEvent"), sim.calls("aclrtStreamWaitEvent"))
        for value in range(5):
            await call(model, value)
        assert sim.callbacks_launched == before[0] + 5
        assert (sim.calls("aclrtRecordEvent"), sim.calls("aclrtStreamWaitEvent")) == before[1:]
        assert {record.stream_id for record in sim.timeline()} == {model.stream.id}


async def test_a_call_that_overlaps_costs_one_callback(npu: aa.Device, sim: Simulator) -> None:
    """Its report covers what its stream has waited for, and so gives back all that the call has used."""
    async with npu.load_model(COPY) as model:
        await calls_at_once(model, 8)
        with sim.hold(model.stream):
            before = sim.callbacks_launched
            async with anyio.create_task_group() as group:
                for value in range(8):
                    group.start_soon(call, model, value)
                await until(lambda: model.statistics().running == 8 and npu.health().queued == 0)
                await anyio.lowlevel.checkpoint()
                sim.release(model.stream)
        assert sim.callbacks_launched == before + 8
        assert npu.health().in_flight == 0


@pytest.mark.parametrize("instances", [1, 3])
async def test_one_model_id_never_runs_twice_at_once(
    instances: int, npu: aa.Device, sim: Simulator, tmp_path: Path
) -> None:
    set_stages(sim, tmp_path, runs=4)
    async with npu.load_model(COPY, instances=instances, concurrency=50) as model:
        assert len(model.streams) == instances
        assert model.stream is model.streams[0]
        records = await held_batch(npu, model, sim, 50)
    runs = of_kind(records, "execute")
    assert len(runs) == 50
    at_once = max(sum(one.start_ns <= run.start_ns < one.end_ns for one in runs) for run in runs)
    assert at_once == 1 if instances == 1 else 2 <= at_once <= instances


async def test_runs_on_device_buffers_go_to_the_instance_with_the_least_to_do(npu: aa.Device, sim: Simulator) -> None:
    async with npu.load_model(COPY, instances=2) as model:
        x, y, z = npu.empty(SIZE), npu.empty(SIZE), npu.empty(SIZE)
        await model.stream.memcpy(x, full(7))
        with sim.hold(model.streams[0]), sim.hold(model.streams[1]):
            operations = [model.execute([x], [y]), model.execute([x], [z])]
            assert [stream.in_flight for stream in model.streams] == [1, 1]
            sim.release(model.streams[1])
            await model.streams[1]
            operations.append(model.execute([x], [y]))
            assert [stream.in_flight for stream in model.streams] == [1, 1]
        for operation in operations:
            await operation


async def test_calls_of_models_with_gears_and_of_dynamic_shape_overlap(npu: aa.Device) -> None:
    gears = (
        b'dynamic_batch = [1, 4]\n[[inputs]]\nname = "x"\nshape = [-1, 3]\n[[outputs]]\nname = "y"\nshape = [-1, 3]\n'
    )
    shapes = b'[[inputs]]\nname = "x"\nshape = [-1, 3]\n[[outputs]]\nname = "y"\nshape = [-1, 3]\n'

    async def one(model: aa.Model, number: int) -> None:
        x = np.full(((1, 4)[number % 2], 3), number, "float32")
        np.testing.assert_array_equal(await model(x), x)

    for text in (gears, shapes):
        async with npu.load_model(text + b'fill = "copy"\n', instances=2) as model, anyio.create_task_group() as group:
            for number in range(40):
                group.start_soon(one, model, number)


# --- what is on the device is bounded ---


async def test_a_thousand_calls_have_no_more_on_the_device_than_those_that_are_let_in(
    npu: aa.Device, sim: Simulator
) -> None:
    async with npu.load_model(COPY, concurrency=3) as model:
        await calls_at_once(model, 3)
        block = npu.statistics().device_cached_bytes // 6
        most = 0
        async with anyio.create_task_group() as group:
            for value in range(1000):
                group.start_soon(call, model, value)
            while model.statistics().ok < 1003:
                await anyio.lowlevel.checkpoint()
                check_sums(model)
                assert model.statistics().running <= 3
                most = max(most, npu.statistics().device_live_bytes)
        assert 0 < most <= 6 * block
        assert npu.statistics().device_cached_bytes == 6 * block  # and no more was ever allocated


async def test_calls_that_were_given_up_keep_their_place_until_the_device_is_past_them(
    npu: aa.Device, sim: Simulator
) -> None:
    """Or a wave of timeouts would fill the memory."""
    async with npu.load_model(COPY, concurrency=2) as model:
        await calls_at_once(model, 2)
        with sim.hold(model.stream):
            for wave in range(3):
                async with anyio.create_task_group() as group:
                    for value in range(10):
                        group.start_soon(call, model, value)
                    await until(lambda wave=wave: model.statistics().calls == 2 + 10 * (wave + 1))
                    group.cancel_scope.cancel()
                now = model.statistics()
                assert (now.cancelled, now.abandoned, now.waiting, now.running) == (10 * (wave + 1), 2, 0, 0)
            assert npu.statistics().device_live_bytes <= 4 * 4096
        await call(model, 5)
        assert model.statistics().abandoned == 0
        check_sums(model)


async def test_waiting_calls_are_let_in_in_their_order(npu: aa.Device, sim: Simulator) -> None:
    order: dict[float, Any] = {}
    async with npu.load_model(COPY, concurrency=1) as model:
        await call(model, 0)
        with sim.hold(model.stream):
            async with anyio.create_task_group() as group:
                for value in range(20):
                    group.start_soon(call, model, value, order)
                    await until(lambda value=value: model.statistics().calls == 2 + value)
                sim.release(model.stream)
    assert list(order) == sorted(order)


async def test_a_cancelled_wait_for_a_place_loses_none(npu: aa.Device, sim: Simulator) -> None:
    """Cancelled before its turn, in the very moment of it, and after it."""
    rng = random.Random(6)
    async with npu.load_model(COPY, concurrency=2) as model:
        for _ in range(30):
            sim.hold(model.stream)
            calls = model.statistics().calls
            async with anyio.create_task_group() as outer:
                scopes: list[anyio.CancelScope] = []

                async def one(scopes: list[anyio.CancelScope] = scopes) -> None:
                    with anyio.CancelScope() as scope:
                        scopes.append(scope)
                        await call(model, 1)

                for _ in range(6):
                    outer.start_soon(one)
                await until(lambda calls=calls: model.statistics().calls == calls + 6)
                when = rng.randrange(4)
                if when == 0:
                    rng.choice(scopes).cancel()
                sim.release(model.stream)
                for _ in range(when):
                    await anyio.lowlevel.checkpoint()
                for scope in rng.sample(scopes, 3):
                    scope.cancel()
            check_sums(model)
        await until(lambda: model.statistics().abandoned == 0)
        with sim.hold(model.stream):  # both places are there
            async with anyio.create_task_group() as group:
                group.start_soon(call, model, 1)
                group.start_soon(call, model, 2)
                await until(lambda: model.statistics().running == 2)
                sim.release(model.stream)
        now = model.statistics()
        assert (now.waiting, now.running, now.abandoned, now.failed) == (0, 0, 0, 0)


async def test_500_calls_of_which_many_are_cancelled_get_their_own_answers(npu: aa.Device) -> None:
    rng = random.Random(500)
    answers: dict[float, Any] = {}

    async def one(value: int, scope: anyio.CancelScope) -> None:
        with scope:
            await call(model, value, answers)

    async with npu.load_model(COPY, instances=2) as model:
        scopes = [anyio.CancelScope() for _ in range(500)]
        async with anyio.create_task_group() as group:
            for value, scope in enumerate(scopes):
                group.start_soon(one, value, scope)
                if rng.random() < 0.3:
                    await anyio.lowlevel.checkpoint()
                if rng.random() < 0.3:
                    rng.choice(scopes[max(0, value - 16) : value + 1]).cancel()
        now = model.statistics()
        cancelled = [value for value, scope in enumerate(scopes) if scope.cancelled_caught]
        assert len(cancelled) > 20
        assert (now.ok, now.failed, now.waiting, now.running) == (len(answers), 0, 0, 0)
        assert now.ok + len(cancelled) == 500
    assert model.statistics().abandoned == 0


async def test_64_calls_keep_nothing_from_the_loop(npu: aa.Device, sim: Simulator) -> None:
    blocking = ("aclrtSynchronizeStream", "aclrtSynchronizeDevice", "aclrtMalloc", "aclrtMallocHost", "aclmdlExecute")
    async with npu.load_model(COPY) as model:
        await calls_at_once(model, 64)
        now = model.statistics()
    assert (now.calls, now.ok) == (64, 64)
    assert {name: sim.calls_on_thread(name) for name in blocking if sim.calls_on_thread(name)} == {}


async def test_calls_from_several_loops_share_the_places(npu: aa.Device) -> None:
    async with npu.load_model(COPY, concurrency=2) as model:
        failures: list[BaseException] = []

        def other_loop() -> None:
            try:
                anyio.run(calls_at_once, model, 100, backend="asyncio")
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=other_loop) for _ in range(2)]
        for thread in threads:
            thread.start()
        await calls_at_once(model, 100)
        for thread in threads:
            await anyio.to_thread.run_sync(thread.join, 60)
        now = model.statistics()
        assert (failures, now.ok, now.waiting, now.running) == ([], 300, 0, 0)


async def test_what_a_closed_loop_has_given_up_makes_room(npu: aa.Device, sim: Simulator) -> None:
    async with npu.load_model(COPY, concurrency=2) as model:
        await calls_at_once(model, 2)

        async def give_up() -> None:
            async with anyio.create_task_group() as group:
                for value in range(5):
                    group.start_soon(call, model, value)
                await until(lambda: model.statistics().running == 2)
                group.cancel_scope.cancel()

        sim.hold(model.stream)
        await anyio.to_thread.run_sync(lambda: anyio.run(give_up, backend="asyncio"))
        assert model.statistics().abandoned == 2
        async with anyio.create_task_group() as group:
            group.start_soon(call, model, 8)
            await until(lambda: model.statistics().waiting == 1)
            sim.release(model.stream)
        assert model.statistics().abandoned == 0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"instances": 0}, ValueError, "instances must be a number of instances, 1 to 64, not 0"),
        ({"instances": 2.0}, TypeError, "instances must be"),
        ({"instances": 3, "concurrency": 2}, ValueError, "concurrency, of all 3 instances together, is 2; give more"),
        ({"concurrency": 0}, ValueError, "concurrency must be a number of calls, 1 to 4096, not 0"),
        ({"concurrency": True}, TypeError, "concurrency must be"),
    ],
)
async def test_numbers_that_make_no_sense_are_refused(
    npu: aa.Device, sim: Simulator, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        await npu.load_model(COPY, **options)
    assert sim.live("models") == 0


async def test_instances_of_which_one_cannot_be_loaded_leave_nothing(npu: aa.Device, sim: Simulator) -> None:
    sim.fail_call("aclmdlLoadFromMem", nth=2, code=245000)
    with pytest.raises(aa.AclError):
        await npu.load_model(COPY, instances=3)
    assert sim.live("models") == 0
    sim.limit_streams(sim.live("streams") + 3)
    with pytest.raises(aa.ResourceError):
        await npu.load_model(COPY, instances=3)
    assert sim.live("models") == 0
