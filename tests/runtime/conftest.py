# SPDX-License-Identifier: Apache-2.0
"""Every test of the runtime runs on each event loop, on the simulator, and must leave nothing behind."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import importlib.util
import logging
import select
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import aioascend as aa
from aioascend import _backend, _debug, _native
from aioascend.debug import Counters, counters
from aioascend.testing import Simulator, simulator

LIVE = (
    "streams",
    "events",
    "contexts",
    "device_blocks",
    "host_blocks",
    "models",
    "datasets",
    "data_buffers",
    "tasks",
)


def eager_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_task_factory(asyncio.eager_task_factory)
    return loop


def _loops() -> dict[str, tuple[str, dict[str, Any]]]:
    loops: dict[str, tuple[str, dict[str, Any]]] = {"asyncio": ("asyncio", {"use_uvloop": False})}
    if sys.version_info >= (3, 12):
        loops["eager"] = ("asyncio", {"loop_factory": eager_loop})
    if importlib.util.find_spec("uvloop"):
        loops["uvloop"] = ("asyncio", {"use_uvloop": True})
    loops["trio"] = ("trio", {})
    return loops


LOOPS = _loops()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "asyncio_only: for what only asyncio has, such as gather")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    dropped = [item for item in items if item.get_closest_marker("asyncio_only") and _loop_of(item) == "trio"]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in dropped]


def _loop_of(item: pytest.Item) -> str:
    call = getattr(item, "callspec", None)
    return str(call.params.get("anyio_backend", ("",))[0]) if call is not None else ""


@pytest.fixture(params=list(LOOPS.values()), ids=list(LOOPS))
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


def grown(before: Counters) -> dict[str, int]:
    """What there is more of; less is what other tests had left behind."""
    return {name: now for name, now in dataclasses.asdict(counters()).items() if now > getattr(before, name)}


@pytest.fixture(autouse=True)
def sim(request: pytest.FixtureRequest) -> Iterator[Simulator]:
    """The simulator, reset. Whatever a test made must be gone when it ends, and every ticket resolved."""
    sim = simulator("sim")
    sim.reset()
    sim.strict()
    before, counted = {what: sim.live(what) for what in LIVE}, counters()

    def left() -> dict[str, int]:
        now = {what: sim.live(what) for what in LIVE}
        return {**grown(counted), **{what: count for what, count in now.items() if count != before[what]}}

    yield sim
    sim.reset()
    # A stream refers to its latest operation, that to its error, and that to frames of the test.
    request.node.funcargs.clear()
    _native.forget_closed_loops()
    limit = time.monotonic() + 10
    gc.collect()
    while left() and time.monotonic() < limit:  # a thread of a pool holds what it has run a moment longer
        select.select([], [], [], 0)
        gc.collect()
    assert left() == {}
    assert counted.tickets == 0


@pytest.fixture
def quick_collections() -> Iterator[None]:
    """For tests that collect garbage often: the collector looks at nothing that is older than they are."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(params=["instant", "brisk"])
def pace(request: pytest.FixtureRequest, sim: Simulator, tmp_path: Path) -> str:
    """For races: tasks that are over when they are launched, and tasks that the device's own thread ends."""
    if request.param == "brisk":
        (tmp_path / "brisk.toml").write_text('name = "brisk"\nlaunch_overhead_us = 1\n', encoding="utf-8")
        sim.set_profile(tmp_path / "brisk.toml")
    return str(request.param)


@pytest.fixture
def debugging(monkeypatch: pytest.MonkeyPatch, sim: Simulator) -> Iterator[_debug.Settings]:
    """Debug mode, as AIOASCEND_DEBUG=1 turns it on for a whole process. Comes before what is opened."""
    for name, value in (("enabled", True), ("slow", 0.1), ("stall", 10.0)):  # what a test changes is changed back
        monkeypatch.setattr(_debug.settings, name, value)
    monkeypatch.setattr(_debug.reported, "_seen", set())
    monkeypatch.setattr(_backend, "_found", {})  # the library is looked up anew, and observed
    _native.set_debugging(True)
    yield _debug.settings
    _native.set_debugging(False)


class Reports(logging.Handler):
    """What debug mode reports."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.upon: Callable[[str], object] = lambda text: None
        self._changed = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self._changed:
            self.texts.append(record.getMessage())
            self._changed.notify_all()
        self.upon(record.getMessage())

    def about(self, *phrases: str) -> list[str]:
        """Those that have all of these in them."""
        return [text for text in self.texts if all(phrase in text for phrase in phrases)]

    async def wait(self, *phrases: str) -> str:
        """The first that has all of these in it."""

        def wait() -> None:
            with self._changed:
                assert self._changed.wait_for(lambda: self.about(*phrases), timeout=60), self.texts

        await anyio.to_thread.run_sync(wait)
        return self.about(*phrases)[0]


@pytest.fixture
def reports(debugging: _debug.Settings) -> Iterator[Reports]:
    handler = Reports()
    _debug.logger.addHandler(handler)
    yield handler
    _debug.logger.removeHandler(handler)


@pytest.fixture
async def npu(anyio_backend: object) -> AsyncIterator[aa.Device]:
    async with aa.open_device(0, backend="sim") as device:
        yield device


@pytest.fixture
async def stream(npu: aa.Device) -> AsyncIterator[aa.Stream]:
    async with npu.create_stream() as stream:
        yield stream


@pytest.fixture
async def other(npu: aa.Device) -> AsyncIterator[aa.Stream]:
    async with npu.create_stream() as stream:
        yield stream


@pytest.fixture(params=["eager", "lazy"])
def delivery(request: pytest.FixtureRequest, sim: Simulator) -> None:
    """When the library tells of a failed task is not specified: before what follows it, or when somebody asks."""
    sim.set_exception_delivery(request.param)
