# SPDX-License-Identifier: Apache-2.0
"""Many calls of one model at once, and trouble: failures, aborts, lost devices, a close in the middle."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

import aioascend as aa
from aioascend.testing import Simulator
from compose.scene import COPY, check_sums, full, until
from runtime.outcomes import error_of

pytestmark = pytest.mark.anyio

Outcomes = dict[int, Any]  # of each call: None, or its error


async def attempt(model: aa.Model, value: int, outcomes: Outcomes) -> None:
    try:
        assert (await model(full(value)) == value).all()
    except aa.AioascendError as error:
        outcomes[value] = error.with_traceback(None)  # whose frames would keep the buffers of the call
    else:
        outcomes[value] = None


def names(outcomes: Outcomes) -> list[str]:
    return [type(outcomes[value]).__name__ for value in sorted(outcomes)]


async def warmed_up(npu: aa.Device, **options: int) -> aa.Model:
    """With memory for a full device, so that nothing waits on the host for that."""
    model = await npu.load_model(COPY, **options)
    async with anyio.create_task_group() as group:
        for value in range(8):
            group.start_soon(attempt, model, value, {})
    return model


def settled(npu: aa.Device, model: aa.Model, calls: int) -> bool:
    """Whether all calls have been made, and what may be is on the device."""
    return model.statistics().calls == calls and npu.health().queued == 0


@pytest.mark.parametrize("delivery", ["eager", "lazy"])
@pytest.mark.parametrize("kind", ["memcpy_h2d", "execute", "memcpy_d2h"])
async def test_a_failure_reaches_no_further_than_what_is_on_the_device(
    kind: str, delivery: Any, npu: aa.Device, sim: Simulator
) -> None:
    outcomes: Outcomes = {}
    sim.set_exception_delivery(delivery)
    async with await warmed_up(npu) as model:
        async with anyio.create_task_group() as group:
            with sim.hold(device=npu):
                for value in range(64):
                    group.start_soon(attempt, model, value, outcomes)
                await until(lambda: settled(npu, model, 72))
                sim.fail_task(kind=kind, nth=4, code=507015)
        own = [error for error in outcomes.values() if error is not None and not isinstance(error, aa.DependencyError)]
        assert [(type(error), error.code) for error in own] == [(aa.TaskError, 507015)]
        behind = [error for error in outcomes.values() if isinstance(error, aa.DependencyError)]
        assert len(behind) <= 8
        assert all(error.__cause__ is not None and error.code == 507015 for error in behind)
        assert names(outcomes).count("NoneType") == 63 - len(behind) >= 55
        assert model.statistics().failed == 1 + len(behind)
        check_sums(model)
        await attempt(model, 100, outcomes)
        assert outcomes[100] is None


async def test_a_failed_instance_leaves_the_others_alone(npu: aa.Device, sim: Simulator) -> None:
    outcomes: Outcomes = {}
    async with await warmed_up(npu, instances=2) as model:
        async with anyio.create_task_group() as group:
            with sim.hold(device=npu):
                for value in range(16):
                    group.start_soon(attempt, model, value, outcomes)
                await until(lambda: settled(npu, model, 24))
                sim.fail_task(kind="execute", stream=model.streams[1], code=507015)
        failed = [error for error in outcomes.values() if error is not None]
        assert len(failed) == 8
        assert {error.stream for error in failed} & {stream.id for stream in model.streams} <= {model.streams[1].id}


async def test_a_refused_launch_in_the_middle_of_a_call_takes_no_place(npu: aa.Device, sim: Simulator) -> None:
    async with await warmed_up(npu, concurrency=2) as model:
        for function in ("aclrtMemcpyAsync", "aclmdlExecuteAsync", "aclrtRecordEvent", "aclrtStreamWaitEvent"):
            outcomes: Outcomes = {}
            calls = model.statistics().calls
            async with anyio.create_task_group() as group:
                with sim.hold(model.stream):
                    group.start_soon(attempt, model, 1, outcomes)
                    await until(lambda calls=calls: settled(npu, model, calls + 1))
                    sim.fail_call(function, code=507899)
                    group.start_soon(attempt, model, 2, outcomes)
                    await until(lambda outcomes=outcomes: 2 in outcomes)
            assert (outcomes[1], outcomes[2].code) == (None, 507899), function
            await until(lambda: model.statistics().abandoned == 0)
        now = model.statistics()
        assert (now.running, now.waiting) == (0, 0)
        async with anyio.create_task_group() as group:
            for value in range(6):
                group.start_soon(attempt, model, value, outcomes)
        assert set(names(outcomes)) == {"NoneType"}


async def test_aborting_the_stream_of_the_runs_ends_every_call(npu: aa.Device, sim: Simulator) -> None:
    """What hangs and what is behind it on the device raises; what waits on the host goes on."""
    outcomes: Outcomes = {}
    async with await warmed_up(npu) as model:
        sim.hold(model.stream)
        async with anyio.create_task_group() as group:
            for value in range(20):
                group.start_soon(attempt, model, value, outcomes)
            await until(lambda: settled(npu, model, 28))
            assert await model.stream.abort()
            sim.release(model.stream)
        told = names(outcomes)
        assert told.count("TaskError") == 8
        assert set(told) <= {"TaskError", "NoneType", "DependencyError"}
        assert told.count("NoneType") >= 11
        await attempt(model, 30, outcomes)
        assert outcomes[30] is None


async def test_an_abort_of_which_the_device_is_not_capable_ends_every_call(npu: aa.Device, sim: Simulator) -> None:
    outcomes: Outcomes = {}
    async with aa.open_device(1, backend="sim") as second:
        model = await warmed_up(second)
        sim.hold(model.stream)
        sim.fail_call("aclrtStreamAbort", code=207000, times=100)
        async with anyio.create_task_group() as group:
            for value in range(20):
                group.start_soon(attempt, model, value, outcomes)
            await until(lambda: settled(second, model, 28))
            assert not await model.stream.abort()
        assert None not in outcomes.values()
        assert names(outcomes).count("RuntimeClosedError") == 12
        sim.release(model.stream)


async def test_a_lost_device_ends_every_call_and_a_reset_leaves_a_dead_model(npu: aa.Device, sim: Simulator) -> None:
    outcomes: Outcomes = {}
    async with aa.open_device(1, backend="sim") as second:
        model = await warmed_up(second)
        sim.hold(model.stream)
        async with anyio.create_task_group() as group:
            for value in range(64):
                group.start_soon(attempt, model, value, outcomes)
            await until(lambda: settled(second, model, 72))
            sim.lose_device(second)
        assert set(names(outcomes)) == {"DeviceLostError"}
        check_sums(model)
        sim.restore_device(second)
        await second.reset()
        await attempt(model, 1, outcomes)
        assert isinstance(outcomes[1], aa.RuntimeClosedError)
        async with second.load_model(COPY) as again:
            await attempt(again, 1, outcomes)
        assert outcomes[1] is None


@pytest.mark.parametrize("what", ["model", "device"])
async def test_a_close_waits_for_the_calls_that_were_made(what: str, npu: aa.Device, sim: Simulator) -> None:
    outcomes: Outcomes = {}
    async with aa.open_device(1, backend="sim") as second:
        model = await warmed_up(second)
        closing = model.close if what == "model" else second.close
        sim.hold(model.stream)
        async with anyio.create_task_group() as group:
            for value in range(30):
                group.start_soon(attempt, model, value, outcomes)
            await until(lambda: settled(second, model, 38))
            group.start_soon(closing)
            await until(lambda: model.closed)
            with pytest.raises(aa.RuntimeClosedError, match="model from bytes is closed"):
                await model(full(0))
            with pytest.raises(aa.RuntimeClosedError):
                model.execute([], [])
            sim.release(model.stream)
        assert set(names(outcomes)) == {"NoneType"}
        assert len(outcomes) == 30
        assert sim.live("models") == 0


async def test_a_cancelled_close_sends_away_what_waits(npu: aa.Device, sim: Simulator) -> None:
    outcomes: Outcomes = {}
    model = await warmed_up(npu)
    sim.hold(model.stream)
    async with anyio.create_task_group() as group:
        for value in range(20):
            group.start_soon(attempt, model, value, outcomes)
        await until(lambda: settled(npu, model, 28))
        with anyio.move_on_after(0):
            await model.close()
        await until(lambda: len(outcomes) == 12)
        assert set(names(outcomes)) == {"RuntimeClosedError"}
        sim.release(model.stream)
    assert names(outcomes).count("NoneType") == 8
    await model.close()
    assert sim.live("models") == 0


async def test_a_call_whose_run_has_failed_before_all_of_it_was_submitted(
    npu: aa.Device, sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes next is refused as it is behind a failure, but that is the call's own."""
    follow = aa.Stream._follow

    def follow_late(self: aa.Stream, source: aa.Stream) -> Any:
        """As if somebody had been told of the failure of the run by now."""
        if source is model.stream:
            raise behind
        return follow(self, source)

    async with await warmed_up(npu) as model, npu.create_stream() as stream:
        buffer = npu.empty(16, "uint8")
        await stream.memset(buffer, 0)
        with sim.hold(stream):
            sim.fail_task(stream=stream, kind="memset")
            failed, follower = stream.memset(buffer, 1), stream.memset(buffer, 2)
        behind = await error_of(follower)
        assert isinstance(behind, aa.DependencyError)
        assert isinstance(await error_of(failed), aa.TaskError)

        outcomes: Outcomes = {}
        async with anyio.create_task_group() as group:
            with sim.hold(model.stream):
                group.start_soon(attempt, model, 1, outcomes)
                await until(lambda: model.statistics().running == 1 and model.stream.in_flight > 0)
                monkeypatch.setattr(aa.Stream, "_follow", follow_late)
                sim.fail_task(kind="execute", nth=2, code=507048)
                group.start_soon(attempt, model, 2, outcomes)
                await until(lambda: model.statistics().running == 2)
        assert outcomes[1] is None
        assert isinstance(outcomes[2], aa.TaskError)
        assert outcomes[2].code == 507048
        check_sums(model)
