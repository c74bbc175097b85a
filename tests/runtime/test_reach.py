# SPDX-License-Identifier: Apache-2.0
"""How far a failure reaches over events, and that finding out takes no time to speak of."""

from __future__ import annotations

import pytest

import aioascend as aa
from aioascend.testing import Simulator
from runtime.outcomes import error_of

pytestmark = pytest.mark.anyio


async def test_streams_that_hand_over_to_each_other_again_and_again(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(4, "uint8")
    sim.fail_task(stream=stream, kind="memset")
    assert isinstance(await error_of(stream.memset(buffer, 0)), aa.TaskError)  # from here on there is something to find
    with sim.hold(stream):
        here, there = stream, other
        for value in range(200):
            here.memset(buffer, value % 256)
            there.wait(here.record())
            here, there = there, here
        last = here.memset(buffer, 0)
    await last


async def test_what_is_submitted_elsewhere_after_somebody_was_told_is_fresh(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(4, "uint8")
    sim.fail_task(stream=stream, kind="memset")
    async with npu.create_stream() as third:
        with sim.hold(other):
            with sim.hold(stream):
                failed = stream.memset(buffer, 1)
                other.wait(stream.record())
                behind = other.memset(buffer, 2)
                record_behind = other.record()
            assert isinstance(await error_of(failed), aa.TaskError)
            # Its wait is not over yet, but what stands behind it was submitted by somebody who knows.
            fresh = other.memset(buffer, 3)
            third.wait(other.record())
            fresh_elsewhere = third.memset(buffer, 4)
            with pytest.raises(aa.DependencyError):
                third.wait(record_behind)
        errors = [await error_of(behind), await error_of(fresh), await error_of(fresh_elsewhere)]
    assert isinstance(errors[0], aa.DependencyError)
    assert errors[0].__cause__ is failed.exception()
    assert errors[1:] == [None, None]


async def test_two_failures_reach_one_record(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(4, "uint8")
    async with npu.create_stream() as third:
        for each in (stream, other):
            sim.fail_task(stream=each, kind="memset")
            sim.hold(each)
        first, second = stream.memset(buffer, 1), other.memset(buffer, 1)
        other.wait(stream.record())
        third.wait(other.record())
        before = third.memset(buffer, 2)
        for each in (stream, other):
            sim.release(each)
        causes = set()
        for value in (2, 3):
            error = await error_of(before if value == 2 else third.memset(buffer, value))
            assert isinstance(error, aa.DependencyError)
            causes.add(error.__cause__)  # and somebody has been told of this one, but not of the other
        assert await error_of(third.memset(buffer, 4)) is None
        assert causes == {await error_of(first), await error_of(second)}
