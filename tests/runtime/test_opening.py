# SPDX-License-Identifier: Apache-2.0
"""What is about to be opened is a coroutine and a context manager; whoever forgets to await it is told."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import aioascend as aa
from aioascend.testing import Simulator

pytestmark = pytest.mark.anyio

COPY = b'[[inputs]]\nname = "x"\nshape = [4]\n[[outputs]]\nname = "y"\nshape = [4]\n'

OPENINGS: dict[str, Callable[[aa.Device, aa.Stream], Any]] = {
    "open_device": lambda npu, stream: aa.open_device(1, backend="sim"),
    "create_stream": lambda npu, stream: npu.create_stream(),
    "wrap_stream": lambda npu, stream: npu.wrap_stream(stream.handle),
    "load_model": lambda npu, stream: npu.load_model(COPY),
}


# --- it can be entered and awaited, once ---


async def test_it_is_closed_at_the_end_of_its_block(npu: aa.Device, stream: aa.Stream) -> None:
    for make in OPENINGS.values():
        opening = make(npu, stream)
        async with opening as made:
            assert not made.closed
        assert made.closed
        with pytest.raises(RuntimeError, match="awaited"):
            await opening
        with pytest.raises(RuntimeError, match="awaited"):
            async with opening:
                pass


async def test_it_is_closed_when_its_block_fails(npu: aa.Device, stream: aa.Stream) -> None:
    for make in OPENINGS.values():
        with pytest.raises(LookupError):
            async with make(npu, stream) as made:
                raise LookupError
        assert made.closed


async def test_it_can_be_awaited_and_then_entered(npu: aa.Device, stream: aa.Stream) -> None:
    for make in OPENINGS.values():
        async with await make(npu, stream) as made:
            assert not made.closed
        assert made.closed


# --- it is a coroutine ---


@pytest.mark.asyncio_only
async def test_a_task(npu: aa.Device) -> None:
    task = asyncio.create_task(npu.load_model(COPY))
    assert "<load_model() " in repr(task)
    async with await task as model:
        assert task.get_stack() == []
        assert not model.closed


@pytest.mark.asyncio_only
async def test_gather(npu: aa.Device, stream: aa.Stream) -> None:
    made = await asyncio.gather(*[make(npu, stream) for make in OPENINGS.values()])
    assert [type(resource) for resource in made] == [aa.Device, aa.Stream, aa.Stream, aa.Model]
    for resource in reversed(made):
        await resource.close()


if sys.version_info >= (3, 11):

    @pytest.mark.asyncio_only
    async def test_a_task_group(npu: aa.Device) -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(npu.load_model(COPY))
        await task.result().close()


async def test_start_soon(npu: aa.Device) -> None:
    """It is opened; that nobody takes it is warned of."""

    async def start() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(npu.load_model, COPY)

    with pytest.warns(ResourceWarning, match="unclosed <Model") as told:
        await start()
    told.clear()


async def test_a_cancelled_task_gives_back_what_it_was_opening(npu: aa.Device, sim: Simulator) -> None:
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(npu.load_model, COPY)
            scope.cancel()
    assert scope.cancelled_caught


async def test_it_can_be_driven_by_hand(npu: aa.Device) -> None:
    opening = npu.create_stream()
    assert isinstance(opening, Coroutine)
    with pytest.raises(LookupError):
        opening.throw(LookupError())
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        opening.send(None)


async def test_they_count_as_coroutine_functions(npu: aa.Device) -> None:
    """To frameworks that decide by it whether to await what a function returns."""
    async with npu.load_model(COPY) as model:
        for function in (npu.load_model, npu.wrap_stream, npu.pinned, model.__call__):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.14 on
                assert asyncio.iscoroutinefunction(function)


# --- somebody forgets to await it ---


async def test_what_nobody_awaits_is_warned_of(npu: aa.Device, stream: aa.Stream) -> None:
    for name, make in OPENINGS.items():
        with pytest.warns(RuntimeWarning, match=f"coroutine '{name}' was never awaited"):
            make(npu, stream)


async def test_what_returns_no_resource_is_warned_of_by_its_name(npu: aa.Device) -> None:
    async with npu.load_model(COPY) as model:
        with pytest.warns(RuntimeWarning, match=r"coroutine 'Device\.pinned' was never awaited"):
            npu.pinned(4)
        with pytest.warns(RuntimeWarning, match=r"coroutine 'Model\.__call__' was never awaited"):
            model([1, 2, 3, 4])


async def test_using_it_says_what_to_do(npu: aa.Device, stream: aa.Stream) -> None:
    for name, make in OPENINGS.items():
        message = rf"^{name}\(\.\.\.\) has no attribute 'memset' before it is awaited: await it, or use async with$"
        with contextlib.closing(make(npu, stream)) as opening, pytest.raises(AttributeError, match=message):
            opening.memset(None, 0)


async def test_giving_it_to_something_says_what_to_do(npu: aa.Device, stream: aa.Stream) -> None:
    with contextlib.closing(npu.load_model(COPY)) as opening:
        unready: Any = opening
        with pytest.raises(TypeError, match=r"not <load_model\(\.\.\.\): await it, or use async with>"):
            stream.execute(unready, [], [])


async def test_two_await_the_same(npu: aa.Device, sim: Simulator) -> None:
    """The second is refused, and does not drive what the first one waits for."""
    sim.set_call_latency("aclrtCreateStreamWithConfig", 0.05)
    opening = npu.create_stream()
    streams: list[aa.Stream] = []
    calls = sim.calls("aclrtCreateStreamWithConfig")

    async def first() -> None:
        streams.append(await opening)

    async with anyio.create_task_group() as group:
        group.start_soon(first)
        while sim.calls("aclrtCreateStreamWithConfig") == calls:
            await anyio.lowlevel.checkpoint()
        with pytest.raises(RuntimeError, match=r"create_stream\(\.\.\.\) is awaited already"):
            await opening
    await streams[0].close()
