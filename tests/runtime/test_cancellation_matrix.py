# SPDX-License-Identifier: Apache-2.0
"""The table of docs/cancellation.md, cell by cell: every state, every way to end a wait, every kind of await."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import anyio
import numpy as np
import pytest

import aioascend as aa
from aioascend import _native
from aioascend.testing import Simulator
from runtime.cancellation import (
    EVERYWHERE,
    FLIGHT_LIMIT,
    IN_ASYNCIO,
    IN_TRIO,
    KINDS,
    NOT_AT_ONCE,
    REACHED,
    SIZE,
    STATES,
    Resolved,
    Scene,
    State,
    model_call,
    operation,
)

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick_collections")]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cancellation.md"
TENSOR = f'name = "x"\nshape = [{SIZE}]\ndtype = "uint8"\n'
MODEL = f'[[inputs]]\n{TENSOR}[[outputs]]\n{TENSOR}fill = "copy"\n'.encode()

RAISED = {
    "`CancelledError`": {"asyncio": "CancelledError"},
    "`CancelledError`, trio's `Cancelled`": {"asyncio": "CancelledError", "trio": "Cancelled"},
    "nothing, it returns": {"asyncio": "nothing", "trio": "nothing"},
}
DESTINATION = {
    "not written": False,
    "not written, unless the worker has begun to": False,
    "written": True,
    "written when the report comes": True,
}
KEPT = {"kept until the report": True, "released": False}


Kind = Callable[[Scene], Awaitable[object]]
Way = Callable[[Scene, Callable[[], Awaitable[None]]], Awaitable[str]]

OPERATIONS_OF_A_CALL = 3  # which cancels those that nobody awaits, too


class Row(NamedTuple):
    state: str
    cancelled: str
    cancelled_destination: str
    wait_ended: str
    wait_ended_destination: str
    memory: str


def table() -> list[Row]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| State of the operation |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(Row(*(cell.strip() for cell in line.strip("|").split("|"))))
    return rows


TABLE = table()


def test_the_table_has_every_state() -> None:
    assert [row.state for row in TABLE] == list(STATES)


@pytest.fixture
async def small(anyio_backend: object) -> AsyncIterator[aa.Device]:
    """A device whose streams soon begin to queue on the host."""
    async with aa.open_device(0, backend="sim", flight_limit=FLIGHT_LIMIT) as device:
        yield device


@pytest.fixture
def silent(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.WARNING)
    yield
    assert caplog.records == []
    assert capfd.readouterr().err == ""


class Expected(NamedTuple):
    """What a row says of a kind of await under a library."""

    raised: str
    written: bool
    kept: bool
    late: int  # operations that are cancelled themselves, so that their reports find nobody

    @classmethod
    def of(cls, row: Row, kind: Kind, library: str) -> Expected:
        reached = library == "asyncio" and kind in REACHED
        return cls(
            RAISED[row.cancelled if reached else row.wait_ended][library],
            DESTINATION[row.cancelled_destination if reached else row.wait_ended_destination],
            KEPT[row.memory],
            (OPERATIONS_OF_A_CALL if kind is model_call else int(reached)) * KEPT[row.memory],
        )


def ways(row: Row, kind: Kind, library: str) -> dict[Way, str]:
    """The ways that there are, and what becomes of a wait that they end."""
    all_ways = EVERYWHERE | (IN_TRIO if library == "trio" else IN_ASYNCIO)
    if STATES[row.state] is not Resolved:
        return all_ways
    if library == "asyncio" and kind is not operation:
        return {}  # a task that awaits one of these alone is resumed as it is resolved
    return {way: outcome for way, outcome in all_ways.items() if way not in NOT_AT_ONCE}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.state)
async def test_row(
    row: Row,
    kind: Kind,
    small: aa.Device,
    sim: Simulator,
    silent: None,
    anyio_backend: tuple[str, object],
    tmp_path: Path,
) -> None:
    library = anyio_backend[0]
    expected = Expected.of(row, kind, library)
    for way, outcome in ways(row, kind, library).items():
        live, late = _live(small), _native.ticket_counts()["late"]
        async with await small.load_model(MODEL) as model, small.create_stream() as stream:
            scene = Scene(sim, library, model.stream if kind is model_call else stream, model)
            await scene.prepare()
            state = STATES[row.state](scene, tmp_path)
            try:
                said = await _end_the_wait(scene, state, kind, way)
                assert scene.got == expected.raised
                assert said == ("returned" if expected.raised == "nothing" else outcome)
                await _go_on(scene, state, kind, small, expected)
            except BaseException as error:
                raise AssertionError(f"{row.state}, {way.__name__}") from error
            finally:
                sim.reset()
        del scene, state, model, stream
        gc.collect()
        assert _live(small) == live
        assert _native.ticket_counts()["late"] - late == expected.late


async def _end_the_wait(scene: Scene, state: State, kind: Kind, way: Way) -> str:
    """Returns as soon as nobody waits any more, while the device is still where it was."""
    said: list[str] = []

    async def wait_in_this_way() -> None:
        said.append(await way(scene, lambda: scene.wait(kind)))

    state.before()
    async with anyio.create_task_group() as group:
        group.start_soon(wait_in_this_way)
        while not scene.waiting:
            await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        state.reached()
    return said[0]


async def _go_on(scene: Scene, state: State, kind: Kind, npu: aa.Device, expected: Expected) -> None:
    """Lets the device get through, and looks at what it touched."""
    destination = weakref.ref(scene.target)
    assert scene.operation is None or scene.operation.cancelled() == expected.late
    live = _live(npu)
    scene.operation = scene.target = scene.buffer = None
    gc.collect()
    if not expected.kept:
        assert destination() is None
    else:
        assert _live(npu) == live or kind is model_call  # whose results are gone with its awaiter
        assert destination() is not None or kind is model_call
        assert not scene.base.any()
    state.let_go()
    spare, result = npu.empty(SIZE, "uint8"), np.zeros(SIZE, "uint8")
    scene.stream.memset(spare, 5)
    await scene.stream.memcpy(result, spare)
    assert (result == 5).all()
    assert destination() is None
    assert scene.base.all() == (expected.written and kind is not model_call)


def _live(npu: aa.Device) -> int:
    blocks = npu._core.pool_statistics()
    return int(blocks["device_live_blocks"] + blocks["pinned_live_blocks"])
