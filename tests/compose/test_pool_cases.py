# SPDX-License-Identifier: Apache-2.0
"""What has gone wrong for users of such pools elsewhere, as scenarios."""

from __future__ import annotations

import contextlib
import itertools
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import aioascend as aa
from aioascend.testing import Simulator
from compose.pools import check, gauges, offered, until, use
from runtime.outcomes import AICORE_EXCEPTION, device_without, error_of

pytestmark = pytest.mark.anyio

COPY = b'[[inputs]]\nname = "x"\nshape = [4]\n[[outputs]]\nname = "y"\nshape = [4]\nfill = "copy"\n'
ROUNDS = 700  # on each loop, so 2000 in all
CREATE = "aclrtCreateStreamWithConfig"


# --- streams run out ---


async def test_the_pool_goes_on_with_the_streams_that_it_gets(
    npu: aa.Device, sim: Simulator, caplog: pytest.LogCaptureFixture
) -> None:
    sim.limit_streams(1 + 6)  # the default stream is one of them
    buffer = npu.empty(16, "uint8")
    sim.clear_timeline()
    async with aa.StreamPool(npu, size=16) as pool:
        async with anyio.create_task_group() as group:
            with sim.hold(device=npu):  # or they could be through before there are six
                for _ in range(200):
                    group.start_soon(use, pool, buffer)
                await until(lambda: caplog.records)
        now = check(pool)
        assert (now.size, now.wanted, now.acquired, now.created) == (6, 16, 200, 6)
        assert sim.calls(CREATE) == 7  # and after the refusal no more for a while
    ran_on = {record.stream_id for record in sim.timeline() if record.kind == "memset"}
    assert len(ran_on) == 6
    (warning,) = [record for record in caplog.records if record.name == "aioascend"]
    assert warning.levelno == logging.WARNING
    assert "wanted 16 streams and got 6" in warning.getMessage()
    assert "207008" in warning.getMessage()


@pytest.mark.parametrize("code", [207008, 207007, 207005])
async def test_without_a_single_stream_there_is_an_error(npu: aa.Device, sim: Simulator, code: int) -> None:
    sim.fail_call(CREATE, code=code, times=2)
    async with aa.StreamPool(npu, size=16) as pool:
        for _ in range(2):  # each time it is tried again
            error = await error_of(pool.acquire().__aenter__())
            assert isinstance(error, aa.ResourceError)
            assert error.code == code
            assert "The pool wanted 16 streams and could not make a single one" in str(error)
        await use(pool, npu.empty(16, "uint8"))
        assert check(pool).failed == 2


async def test_streams_that_become_free_are_taken_later(
    npu: aa.Device, sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioascend.pool.supply._RETRY_S", 1e-3)
    sim.limit_streams(1 + 2)
    async with aa.StreamPool(npu, size=4) as pool, pool.acquire(), pool.acquire():
        with pytest.raises(aa.DeadlineError):
            await pool.acquire(timeout=0.01).__aenter__()
        assert pool.size == 2
        sim.limit_streams(None)
        await use(pool, npu.empty(16, "uint8"))  # nobody has to give one back for that
        assert pool.size == 3


# --- a cancelled acquire ---


class Round:
    """Both streams are held, five wait; in the moment in which one is given back, one of those who wait is cancelled.

    Attributes:
        using: The streams that somebody has.
        outcomes: What became of those who have waited.
    """

    def __init__(self, pool: aa.StreamPool, seed: int) -> None:
        self.pool = pool
        self.random = random.Random(seed)
        self.using: set[aa.Stream] = set()
        self.outcomes: Counter[str] = Counter()
        self.scopes: list[anyio.CancelScope] = []

    async def wait(self, soon: bool) -> None:
        with anyio.CancelScope() as scope:
            self.scopes.append(scope)
            try:
                async with self.pool.acquire(timeout=1e-3 if soon else None) as stream:
                    assert stream not in self.using
                    self.using.add(stream)
                    try:
                        check(self.pool)
                        await anyio.lowlevel.checkpoint()
                    finally:
                        self.using.remove(stream)
                self.outcomes["served"] += 1
            except aa.DeadlineError:
                self.outcomes["timed out"] += 1
        if scope.cancelled_caught:
            self.outcomes["cancelled"] += 1

    async def some_ticks(self) -> None:
        for _ in range(self.random.randrange(3)):
            await anyio.lowlevel.checkpoint()

    async def play(self) -> None:
        held = [self.pool.acquire() for _ in range(2)]
        for lease in held:
            await lease.__aenter__()
        timed = self.random.choice([None, None, None, None, None, None, "soon", "now", "then"])
        timed_out, due = self.pool.statistics().timed_out, anyio.current_time() + 1e-3  # the resolution of uvloop
        async with anyio.create_task_group() as group:
            for number in range(5):
                group.start_soon(self.wait, timed is not None and number == 0)
            await until(lambda: len(self.scopes) == 5)
            await self.some_ticks()
            if timed == "now":
                await until(lambda: anyio.current_time() >= due)
            if timed == "then":
                await until(lambda: self.pool.statistics().timed_out > timed_out)
            cancelled = [] if timed else self.scopes[: self.random.randrange(1, 3)]
            steps: list[Callable[[], object]] = [scope.cancel for scope in cancelled]
            before, after = self.random.randrange(2), self.random.randrange(2)
            for step in steps[:before]:
                step()
            await held[0].__aexit__(None, None, None)  # never suspends: what follows is the same tick
            if after:
                await self.some_ticks()
            for step in steps[before:]:
                step()
            await self.some_ticks()
            await held[1].__aexit__(None, None, None)
        assert sum(self.outcomes.values()) == 5
        for scope in cancelled:
            assert scope.cancel_called
        assert gauges(self.pool) == (2, 0, 0, 0)


async def test_a_cancelled_acquire_loses_no_stream(npu: aa.Device) -> None:
    outcomes: Counter[str] = Counter()
    async with aa.StreamPool(npu, size=2) as pool:
        await offered(pool, 2)
        for seed in range(ROUNDS):
            one = Round(pool, seed)
            await one.play()
            outcomes += one.outcomes
        await offered(pool, 2)
        assert check(pool).created == 2
    assert outcomes["cancelled"] > ROUNDS / 2
    assert outcomes["timed out"] > ROUNDS / 20
    assert outcomes["served"] > ROUNDS


# --- a slot is not given back after an exception ---


async def test_streams_come_back_whatever_happens(npu: aa.Device, sim: Simulator) -> None:
    async with aa.StreamPool(npu, size=3) as pool, await npu.load_model(COPY) as model:
        await offered(pool, 3)
        x, y, small = npu.empty(4), npu.empty(4), npu.empty(2)

        async def good() -> None:
            async with pool.acquire() as stream:
                await stream.memcpy(x, np.ones(4, "float32"))
                await stream.execute(model, [x], [y])

        async def wrong_size() -> None:
            async with pool.acquire() as stream:
                await stream.execute(model, [small], [y])

        async def fails() -> None:
            async with pool.acquire() as stream:
                sim.fail_task(stream=stream, kind="execute", code=AICORE_EXCEPTION)
                await stream.execute(model, [x], [y])

        async def no_memory() -> None:
            async with pool.acquire() as stream:
                await stream.execute(model, [npu.empty(4)], [npu.empty(1 << 20)])

        async def is_cancelled() -> None:
            with anyio.move_on_after(0):
                async with pool.acquire() as stream:
                    await stream.execute(model, [x], [y])

        async def three(work: Callable[[], Any], error: type[Exception] | None = None) -> None:
            for _ in range(3):  # one by one, as runs of one model depend on those in front
                with pytest.raises(error) if error is not None else contextlib.nullcontext():
                    await work()
            await until(lambda: pool.statistics().idle == 3)

        await good()
        await three(wrong_size, ValueError)
        await three(fails, aa.TaskError)
        sim.limit_memory(1 << 20)
        await three(no_memory, aa.OutOfMemoryError)
        sim.limit_memory(None)
        await three(is_cancelled)
        async with anyio.create_task_group() as group:
            for _ in range(100):
                group.start_soon(good)
        assert gauges(pool) == (3, 0, 0, 0)
        assert check(pool).created == 3


# --- an abort strands the streams that wait ---


@pytest.mark.parametrize("capable", [True, False])
async def test_after_an_abort_the_pool_has_its_full_size(sim: Simulator, anyio_backend: object, capable: bool) -> None:
    device = aa.open_device(1, backend="sim") if capable else await device_without("aclrtStreamAbort")
    async with device as npu, aa.StreamPool(npu, size=2) as pool:
        buffer = npu.empty(16, "uint8")
        await offered(pool, 2)
        async with pool.acquire() as stream, pool.acquire() as other:
            await stream.memset(buffer, 0)  # or it might not be there yet, and nothing would reach the device
            with sim.hold(stream):
                aborted = stream.memset(buffer, 1)
                other.wait(stream.record())
                behind = other.memset(buffer, 2)
                assert await stream.abort() is capable
            assert isinstance(await error_of(aborted), aa.TaskError)
            assert isinstance(await error_of(behind), aa.DependencyError)
        for each in await offered(pool, 2):
            await each.memset(buffer, 3)
        now = check(pool)
        assert (now.size, now.replaced) == (2, 0 if capable else 2)


# --- the stream of another coroutine ---


async def test_no_task_meets_another_one_on_its_stream(npu: aa.Device, sim: Simulator) -> None:
    """Nothing is ambient: a task submits to the stream that it was given, however blocks are nested and left."""
    sim.clear_timeline()
    blocks: list[tuple[int, int, int]] = []  # stream, bytes, operations

    async def work(pool: aa.StreamPool, mark: int) -> None:
        buffers = [npu.empty(mark, "uint8"), npu.empty(mark + 1, "uint8")]
        for turn in range(10):
            with contextlib.suppress(LookupError):
                async with pool.acquire() as outer, pool.acquire() as inner:
                    for _ in range(3):
                        for stream, buffer in zip((outer, inner), buffers, strict=True):
                            await stream.memset(buffer, turn)
                            await anyio.lowlevel.checkpoint()
                    blocks.extend(
                        (stream.id, buffer.nbytes, 3) for stream, buffer in zip((outer, inner), buffers, strict=True)
                    )
                    if turn % 3 == 0:
                        raise LookupError

    async def streams(pool: aa.StreamPool) -> AsyncIterator[aa.Stream]:
        async with pool.acquire() as stream:
            for _ in range(20):
                yield stream

    async def generator(pool: aa.StreamPool) -> None:
        buffer, count, last = npu.empty(900, "uint8"), 0, -1
        async for stream in streams(pool):
            await stream.memset(buffer, 1)
            count, last = count + 1, stream.id
        blocks.append((last, 900, count))

    async with aa.StreamPool(npu, size=5) as pool:
        async with anyio.create_task_group() as group:
            group.start_soon(work, pool, 100)
            group.start_soon(work, pool, 200)
            group.start_soon(generator, pool)
        assert gauges(pool)[1:] == (0, 0, 0)
    ran: Counter[tuple[int, int]] = Counter()
    per_stream: dict[int, list[int]] = {}
    for record in sim.timeline():
        if record.kind == "memset":
            ran[record.stream_id, record.nbytes] += 1
            per_stream.setdefault(record.stream_id, []).append(record.nbytes)
    expected: Counter[tuple[int, int]] = Counter()
    for stream_id, nbytes, operations in blocks:
        expected[stream_id, nbytes] += operations
    assert ran == expected
    for sizes in per_stream.values():  # a block is over before the next one begins
        runs = [1]
        for before, after in itertools.pairwise(sizes):
            if after == before:
                runs[-1] += 1
            else:
                runs.append(1)
        assert all(length % 3 == 0 or length == 20 for length in runs), runs


# --- metrics drift ---


async def test_the_sums_hold_at_any_moment(npu: aa.Device, sim: Simulator) -> None:
    """Requests that end in every way there is; looked at after every step."""
    dice = random.Random(23)
    outcomes: Counter[str] = Counter()
    doomed: list[anyio.CancelScope] = []
    buffer = npu.empty(16, "uint8")

    async def work(stream: aa.Stream, kind: str) -> None:
        check(pool)
        if kind == "fails":
            sim.fail_task(stream=stream, kind="memset", code=AICORE_EXCEPTION)
        if kind == "closes":
            await stream.close()
        else:
            await stream.memset(buffer, 1)

    async def request(kind: str) -> None:
        timeout = 1e-6 if kind == "too late" else None
        try:
            with anyio.CancelScope() as scope:
                if kind == "cancelled":
                    doomed.append(scope)
                async with pool.acquire(timeout=timeout, priority=dice.randrange(3)) as stream:
                    if kind == "cancelled while it runs":
                        scope.cancel()
                    await work(stream, kind)
            outcomes["cancelled" if scope.cancelled_caught else "succeeds"] += 1
        except (aa.DeadlineError, aa.TaskError, aa.RuntimeClosedError) as error:
            outcomes[type(error).__name__] += 1
        check(pool)

    async def some_requests() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(100):
                kind = dice.choices(list(shares), list(shares.values()))[0]
                group.start_soon(request, kind)
                if dice.random() < 0.1:
                    await anyio.lowlevel.checkpoint()
                    check(pool)
            await anyio.lowlevel.checkpoint()
            for scope in doomed:
                scope.cancel()
                check(pool)
            doomed.clear()

    shares = {"succeeds": 40, "fails": 15, "too late": 25, "cancelled": 10, "cancelled while it runs": 5, "closes": 5}
    pool = aa.StreamPool(npu, size=(2, 4))
    async with pool:
        for _ in range(20):
            await some_requests()
        await until(lambda: gauges(pool)[1:] == (0, 0, 0))
    for _ in range(3):
        await request("succeeds")  # refused, as it is closed
    now = check(pool)
    assert sum(outcomes.values()) == 2003
    assert (now.timed_out, now.failed) == (outcomes["DeadlineError"], outcomes["RuntimeClosedError"])
    assert now.timed_out > 300
    assert 0 < now.cancelled <= outcomes["cancelled"]
    assert now.failed == 3
    assert (now.size, now.idle, now.held, now.draining, now.waiting) == (0, 0, 0, 0, 0)
