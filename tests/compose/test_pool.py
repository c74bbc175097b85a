# SPDX-License-Identifier: Apache-2.0
"""Pools of streams: how many there are, who gets one, and when."""

from __future__ import annotations

import contextlib
import logging
import re
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import TaskGroup

import aioascend as aa
from aioascend import _debug
from aioascend._deadlines import HomeLoop
from aioascend.pool import queue
from aioascend.testing import Simulator
from compose.pools import check, gauges, offered, until, use

pytestmark = pytest.mark.anyio

CREATE = "aclrtCreateStreamWithConfig"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pool's clock, which stands still."""
    time = [1000.0]

    class Standing(HomeLoop):
        def __init__(self) -> None:
            super().__init__()
            self.now = lambda: time[0]

    monkeypatch.setattr("aioascend.pool.pool.HomeLoop", Standing)
    return time


# --- how many ---


async def test_streams_are_made_when_needed_and_used_again(npu: aa.Device, sim: Simulator) -> None:
    buffer = npu.empty(16, "uint8")
    async with aa.StreamPool(npu, size=4) as pool:
        assert sim.calls(CREATE) == 0
        for _ in range(20):
            await use(pool, buffer)
        assert sim.calls(CREATE) == 1
        assert gauges(pool) == (1, 0, 0, 0)
        await offered(pool, 4)
        assert sim.calls(CREATE) == 4
        assert sim.calls_on_thread(CREATE) == 0  # the loop was not held up
        await offered(pool, 4)
        assert sim.calls(CREATE) == 4
        assert pool.size == 4
    assert check(pool).size == 0


async def test_the_stream_used_last_is_used_next(npu: aa.Device) -> None:
    async with aa.StreamPool(npu, size=3) as pool:
        *_, last = await offered(pool, 3)
        async with pool.acquire() as first, pool.acquire():
            pass
        async with pool.acquire() as again:
            assert again is first  # it was given back last
        assert last in [stream for stream, _ in pool._idle]


async def test_no_more_than_the_size(npu: aa.Device) -> None:
    async with aa.StreamPool(npu, size=2) as pool:
        at_once = most = 0

        async def work() -> None:
            nonlocal at_once, most
            async with pool.acquire() as stream:
                at_once += 1
                most = max(most, at_once)
                await stream.memset(npu.empty(4, "uint8"), 0)
                check(pool)
                at_once -= 1

        async with anyio.create_task_group() as group:
            for _ in range(50):
                group.start_soon(work)
        assert most == 2
        assert check(pool).created == 2


async def test_streams_that_nobody_needs_are_closed(npu: aa.Device, sim: Simulator, clock: list[float]) -> None:
    async with aa.StreamPool(npu, size=(2, 5), idle_timeout=30) as pool:
        await offered(pool, 5)
        clock[0] += 29
        async with pool.acquire():
            pass
        assert pool.size == 5
        clock[0] += 1  # four have been idle for 30 s, one for 1 s
        async with pool.acquire():
            pass
        assert pool.size == 2
        assert check(pool).retired == 3
        await until(lambda: sim.calls("aclrtDestroyStream") == 3)
        clock[0] += 1000
        async with pool.acquire():
            pass
        assert pool.size == 2
        await offered(pool, 5)


async def test_a_fixed_size_is_kept(npu: aa.Device, clock: list[float]) -> None:
    async with aa.StreamPool(npu, size=3) as pool:
        await offered(pool, 3)
        clock[0] += 1e6
        async with pool.acquire():
            pass
        assert pool.size == 3


@pytest.mark.parametrize(("cores", "most"), [(1, 8), (4, 8), (5, 10), (20, 16)])
async def test_without_a_size_the_device_decides(
    npu: aa.Device, sim: Simulator, tmp_path: Any, cores: int, most: int
) -> None:
    (tmp_path / "cores.toml").write_text(f'name = "cores"\nai_cores = {cores}\n', encoding="utf-8")
    sim.set_profile(tmp_path / "cores.toml")
    async with aa.StreamPool(npu) as pool:
        assert pool.statistics().wanted == most
        await offered(pool, most)
    sim.fail_call("aclrtGetDeviceInfo")
    async with aa.StreamPool(npu) as pool:
        assert pool.statistics().wanted == 8


# --- whose turn it is ---


async def served(pool: aa.StreamPool, requests: list[tuple[str, int, float]], clock: list[float]) -> list[str]:
    """The order in which they are served that come (name, priority, when) while the only stream is held."""
    order: list[str] = []

    async def work(name: str, priority: int) -> None:
        async with pool.acquire(priority=priority):
            order.append(name)

    async with anyio.create_task_group() as group, pool.acquire():
        for count, (name, priority, when) in enumerate(requests, 1):
            clock[0] = when
            group.start_soon(work, name, priority)
            await until(lambda count=count: pool.statistics().waiting == count)
    return order


async def test_first_come_first_served_within_a_priority(npu: aa.Device, clock: list[float]) -> None:
    async with aa.StreamPool(npu, size=1) as pool:
        come = [("a", 1, 0.0), ("b", 0, 0.0), ("c", 1, 0.0), ("d", -1, 0.0), ("e", 0, 0.0)]
        assert await served(pool, come, clock) == ["d", "b", "e", "a", "c"]


async def test_waiting_makes_up_for_priority(npu: aa.Device, clock: list[float]) -> None:
    """However many come with the better priority, those that have waited long enough are not passed over."""
    async with aa.StreamPool(npu, size=1, ageing=2.0) as pool:
        come = [("low", 1, 0.0), *((f"high at {when}", 0, when) for when in (0.0, 1.0, 1.9, 2.1, 3.0))]
        expected = ["high at 0.0", "high at 1.0", "high at 1.9", "low", "high at 2.1", "high at 3.0"]
        assert await served(pool, come, clock) == expected


async def test_a_timeout_is_told_from_a_cancellation(npu: aa.Device) -> None:
    async with aa.StreamPool(npu, size=1) as pool, pool.acquire():
        with pytest.raises(aa.DeadlineError, match="acquiring a stream of <StreamPool on device 0") as caught:
            await pool.acquire(timeout=1e-6).__aenter__()
        assert not caught.value.started
        with anyio.move_on_after(0) as scope:
            await pool.acquire(timeout=100).__aenter__()
        assert scope.cancelled_caught
        async with anyio.create_task_group() as group:
            group.start_soon(pool.acquire(timeout=100).__aenter__)
            await until(lambda: pool.statistics().waiting)
            group.cancel_scope.cancel()
        now = check(pool)
        assert (now.timed_out, now.cancelled, now.waiting) == (1, 1, 0)  # one was cancelled before it came


async def test_a_stream_that_is_being_made_is_not_lost_with_who_asked_for_it(npu: aa.Device, sim: Simulator) -> None:
    sim.set_call_latency(CREATE, 0.05)
    async with aa.StreamPool(npu, size=1) as pool:
        with pytest.raises(aa.DeadlineError):
            await pool.acquire(timeout=1e-6).__aenter__()
        async with pool.acquire():
            assert sim.calls(CREATE) == 1


async def test_a_held_stream_that_is_given_back_is_taken_before_one_is_made(npu: aa.Device, sim: Simulator) -> None:
    sim.set_call_latency(CREATE, 0.2)
    async with aa.StreamPool(npu, size=2) as pool:
        async with anyio.create_task_group() as group:
            async with pool.acquire() as first:
                group.start_soon(use, pool, npu.empty(4, "uint8"))
                await until(lambda: pool.statistics().waiting)
            await until(lambda: not pool.statistics().waiting)
            assert pool.statistics().created == 1  # the other one is still being made
        async with pool.acquire() as again:
            assert again is first


# --- life ---


async def test_the_end_of_the_block_serves_who_waits(npu: aa.Device) -> None:
    buffer, done = npu.empty(4, "uint8"), []

    async def work(pool: aa.StreamPool, entered: anyio.Event) -> None:
        async with pool.acquire() as stream:
            entered.set()
            await stream.memset(buffer, 1)
            done.append(stream)

    async with anyio.create_task_group() as group:
        async with aa.StreamPool(npu, size=2) as pool:
            entered = anyio.Event()
            for _ in range(10):
                group.start_soon(work, pool, entered)
            await entered.wait()
        assert len(done) == 10
        assert gauges(pool) == (0, 0, 0, 0)
        with pytest.raises(aa.RuntimeClosedError, match="<StreamPool on device 0, closed>"):
            await pool.acquire().__aenter__()
    check(pool)


async def test_a_block_that_fails_refuses_who_waits_and_keeps_its_error(npu: aa.Device) -> None:
    refused: list[str] = []

    async def work(pool: aa.StreamPool) -> None:
        try:
            await use(pool, npu.empty(4, "uint8"))
        except aa.RuntimeClosedError as error:
            refused.append(str(error))

    async def fail(pool: aa.StreamPool, group: TaskGroup) -> None:
        async with pool, pool.acquire():
            for _ in range(3):
                group.start_soon(work, pool)
            await until(lambda: pool.statistics().waiting == 3)
            raise LookupError("of the block")

    pool = aa.StreamPool(npu, size=1)
    async with anyio.create_task_group() as group:
        with pytest.raises(LookupError, match="of the block"):  # as it is, in no group
            await fail(pool, group)
    assert len(refused) == 2  # the third got the stream when the inner block had ended
    assert check(pool).failed == 2
    assert pool.size == 0


async def test_who_holds_a_stream_is_waited_for_and_named(
    npu: aa.Device, caplog: pytest.LogCaptureFixture, debugging: _debug.Settings
) -> None:
    go = anyio.Event()

    async def keep(pool: aa.StreamPool, holding: anyio.Event) -> None:
        async with pool.acquire() as stream:
            holding.set()
            await go.wait()
            await stream.memset(npu.empty(4, "uint8"), 1)

    class Release(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            go.set()

    handler = Release()
    logging.getLogger("aioascend").addHandler(handler)
    try:
        async with anyio.create_task_group() as group:
            async with aa.StreamPool(npu, size=2) as pool:
                holding = anyio.Event()
                group.start_soon(keep, pool, holding)
                await holding.wait()
            assert pool.size == 0
    finally:
        logging.getLogger("aioascend").removeHandler(handler)
    (record,) = [record for record in caplog.records if record.name == "aioascend"]
    assert "waits for 1 stream that somebody holds" in record.getMessage()
    held = r"<Stream \d+ on device 0, .*>, acquired at\n.*pool.acquire\(\) as stream"
    assert re.search(held, record.getMessage(), re.DOTALL)


async def test_a_stream_that_is_never_given_back_does_not_keep_a_block_that_fails(
    npu: aa.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioascend.pool.pool.GRACE_S", 0.01)
    pool = aa.StreamPool(npu, size=2)
    lease = pool.acquire()
    streams: list[aa.Stream] = []

    async def fail() -> None:
        async with pool:
            streams.append(await lease.__aenter__())
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    assert streams[0].closed
    with pytest.raises(aa.RuntimeClosedError):
        streams[0].memset(npu.empty(4, "uint8"), 1)
    await lease.__aexit__(None, None, None)  # late, and no harm
    assert gauges(pool) == (0, 0, 0, 0)


async def test_a_cancelled_end_of_the_block_leaves_nothing(npu: aa.Device, sim: Simulator) -> None:
    with anyio.CancelScope() as scope:
        async with aa.StreamPool(npu, size=2) as pool:
            async with pool.acquire() as stream:
                hold = sim.hold(stream)
                abandoned = stream.memset(npu.empty(4, "uint8"), 1)
            assert gauges(pool) == (0, 0, 1, 0)
            scope.cancel()
    assert scope.cancelled_caught
    assert gauges(pool) == (0, 0, 0, 0)
    assert stream.closed
    assert not abandoned.done()
    with hold:
        pass
    await until(abandoned.done)
    await until(lambda: sim.calls("aclrtDestroyStream") == 1)


async def test_the_end_of_the_block_is_cancelled_while_work_comes_to_its_end(npu: aa.Device, sim: Simulator) -> None:
    """In whatever step of the end it is."""
    for ticks in range(12):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group, aa.StreamPool(npu, size=2) as pool:
                async with pool.acquire() as stream:
                    hold = sim.hold(stream)
                    abandoned = stream.memset(npu.empty(4, "uint8"), 1)

                async def end(hold: Any, scope: anyio.CancelScope, ticks: int) -> None:
                    with hold:
                        pass
                    with anyio.CancelScope(shield=True):
                        for _ in range(ticks):
                            await anyio.lowlevel.checkpoint()
                    scope.cancel()

                group.start_soon(end, hold, scope, ticks)
        assert gauges(pool) == (0, 0, 0, 0)
        await until(abandoned.done)


async def test_closing_more_than_once(npu: aa.Device) -> None:
    async with aa.StreamPool(npu, size=2) as pool:
        await offered(pool, 2)
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(pool.close)
        assert pool.closed
        assert pool.size == 0
        await pool.close()
    await pool.close()
    with pytest.raises(RuntimeError, match="make another one"):
        await pool.__aenter__()


async def test_a_pool_belongs_to_its_loop(npu: aa.Device, anyio_backend: Any) -> None:
    name, options = anyio_backend
    async with aa.StreamPool(npu, size=1) as pool:

        def elsewhere() -> str:
            async def take() -> str:
                with pytest.raises(RuntimeError, match="belongs to the event loop that has entered it") as caught:
                    await pool.acquire().__aenter__()
                return str(caught.value)

            return anyio.run(take, backend=name, backend_options=options)

        await anyio.to_thread.run_sync(elsewhere)
        assert check(pool).submitted == 0


async def test_outside_of_its_block(npu: aa.Device) -> None:
    pool = aa.StreamPool(npu, size=1)
    assert check(pool).size == 0
    with pytest.raises(RuntimeError, match="has not been entered: async with"):
        await pool.acquire().__aenter__()
    async with pool:
        lease = pool.acquire()
        async with lease:
            with pytest.raises(RuntimeError, match=re.escape("call pool.acquire() for each")):
                await lease.__aenter__()
        assert gauges(pool) == (1, 0, 0, 0)


async def test_closed_before_it_was_entered(npu: aa.Device) -> None:
    pool = aa.StreamPool(npu)
    await pool.close()
    assert pool.closed
    assert check(pool).size == 0
    with pytest.raises(aa.RuntimeClosedError, match="closed"):
        await pool.acquire().__aenter__()
    with pytest.raises(RuntimeError, match="has been entered before, or closed"):
        await pool.__aenter__()


async def test_a_block_that_is_cancelled_leaves_nobody_waiting(npu: aa.Device) -> None:
    """Not even who is shielded, although the task that makes streams may end before there is one."""
    with anyio.CancelScope() as scope:
        async with aa.StreamPool(npu, size=2) as pool:
            scope.cancel()
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.fail_after(60, shield=True):
                    for _ in range(4):
                        with contextlib.suppress(aa.RuntimeClosedError):
                            async with pool.acquire(), pool.acquire():
                                pass
                    await pool.close()
    assert check(pool).size == 0


async def test_a_close_elsewhere_ends_with_the_block(npu: aa.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when somebody still holds a stream, which is then closed under them."""
    monkeypatch.setattr("aioascend.pool.pool.GRACE_S", 1e-3)
    async with anyio.create_task_group() as group:
        with pytest.raises(LookupError, match="left"):  # noqa: PT012 - as it is, not in a group
            async with aa.StreamPool(npu, size=1) as pool:
                lease = pool.acquire()
                stream = await lease.__aenter__()
                group.start_soon(pool.close)
                await until(lambda: pool.closed)
                raise LookupError("left")
    assert stream.closed
    await lease.__aexit__(None, None, None)
    assert check(pool).size == 0


async def test_a_closed_device(sim: Simulator, anyio_backend: object) -> None:
    npu = await aa.open_device(0, backend="sim")
    async with aa.StreamPool(npu, size=1) as pool:
        await use(pool, npu.empty(4, "uint8"))
        await npu.close()
        with pytest.raises(aa.RuntimeClosedError, match="device 0 is closed"):
            await pool.acquire().__aenter__()
    with pytest.raises(aa.RuntimeClosedError, match="device 0 is closed"):
        await aa.StreamPool(npu, size=1).__aenter__()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"size": 0}, ValueError, "size must be a number of streams, a pair of numbers, or None, 1 to 2048, not 0"),
        ({"size": 2049}, ValueError, "not 2049"),
        ({"size": True}, TypeError, "not True"),
        ({"size": "4"}, TypeError, "not '4'"),
        ({"size": (1,)}, ValueError, r"a pair, the fewest and the most streams, not \(1,\)"),
        ({"size": (0, 4)}, ValueError, "not 0"),
        ({"size": (4, 1)}, ValueError, r"the fewest and then the most streams, not \(4, 1\)"),
        ({"ageing": 0}, ValueError, "ageing must be a number of seconds above 0"),
        ({"idle_timeout": "1"}, TypeError, "idle_timeout must be a number of seconds"),
    ],
)
async def test_what_makes_no_pool(npu: aa.Device, arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        aa.StreamPool(npu, **arguments)


async def test_what_acquires_no_stream(npu: aa.Device) -> None:
    with pytest.raises(TypeError, match="device must be a Device, which open_device returns, not 0"):
        aa.StreamPool(0)  # type: ignore[arg-type]
    pool = aa.StreamPool(npu)
    with pytest.raises(
        ValueError, match=re.escape("timeout must be a number of seconds above 0 and below 1e+09, not -1")
    ):
        pool.acquire(timeout=-1)
    with pytest.raises(TypeError, match=r"priority must be a whole number, .* not 'high'"):
        pool.acquire(priority="high")  # type: ignore[arg-type]


def test_the_queue_forgets_who_leaves() -> None:
    """However many come and go, it is no longer than those who wait."""

    async def come_and_go() -> None:
        waiting = queue.Queue(1.0)
        for _ in range(1000):
            request = queue.Request(1.0, 0, None)
            waiting.join(request, 0.0)
            waiting.leave(request)
        assert len(waiting) == 0

    anyio.run(come_and_go)
