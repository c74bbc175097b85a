# SPDX-License-Identifier: Apache-2.0
"""Units that a scheduler makes itself, one on each of its devices."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio

from aioascend._background import Background
from aioascend._cancels import is_cancelled, stray
from aioascend._closing import GRACE_S
from aioascend.device import Device
from aioascend.errors import AclError

if TYPE_CHECKING:
    from aioascend.scheduler.scheduler import Scheduler

__all__ = ["Loaded"]

U = TypeVar("U")
Recover = Callable[[U], Awaitable["U | None"]]


class Loaded(Generic[U]):
    """Loads the units, enters the scheduler over them, and closes both."""

    def __init__(
        self,
        devices: Sequence[Device],
        load: Callable[[Device], Awaitable[U]],
        make: Callable[[list[U], Recover[U]], Scheduler[U]],
    ) -> None:
        for device in devices:
            if not isinstance(device, Device):
                raise TypeError(f"devices must be open devices, which open_device returns, not {device!r}")
        if not callable(load):
            raise TypeError(f"load must be a function that makes the unit of a device, not {load!r}")
        self._devices = devices
        self._load = load
        self._units: list[U] = []
        self._make = make
        self._entered = False

    async def __aenter__(self) -> Scheduler[U]:
        if self._entered:
            raise RuntimeError("a scheduler over devices has been entered before; make another one")
        self._entered = True
        self._resetting = {device.index: anyio.Lock() for device in self._devices}
        loaded: dict[int, U] = {}
        failures: list[Exception] = []

        async def load(index: int, device: Device) -> None:
            try:
                loaded[index] = await self._load(device)
            except Exception as error:
                failures.append(error)
            except anyio.get_cancelled_exc_class() as cancel:
                if is_cancelled(in_doubt=False):
                    raise
                failures.append(stray(f"loading the unit of device {device.index}", cancel))
            if failures:
                group.cancel()

        try:
            async with Background() as group:
                for index, device in enumerate(self._devices):
                    group.start_soon(load, index, device)
            if failures:
                raise failures[0]
            self._units = [loaded[index] for index in range(len(self._devices))]
            self._scheduler = self._make(self._units, self._load_again)
            return await self._scheduler.__aenter__()
        except BaseException:
            with anyio.move_on_after(GRACE_S, shield=True):
                await _close_all(list(loaded.values()))
            raise

    async def _load_again(self, unit: U) -> U:
        index = next(index for index, one in enumerate(self._units) if one is unit)
        device = self._devices[index]
        async with self._resetting[device.index]:  # another unit of it may be about to be loaded again, too
            if device.health().state == "failed":
                await device.reset()
        await _close(unit)
        self._units[index] = fresh = await self._load(device)
        return fresh

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._scheduler.__aexit__(kind, error, traceback)
        finally:
            with anyio.CancelScope() if error is None else anyio.move_on_after(GRACE_S, shield=True):
                await _close_all(self._units)


async def _close_all(units: Sequence[Any]) -> None:
    """One that cannot be closed, or a cancel, keeps none of the others open."""
    failures: list[BaseException] = []
    for unit in units:
        try:
            await _close(unit)
        except BaseException as error:  # noqa: PERF203 - see above
            failures.append(error)
    failures.sort(key=lambda failure: isinstance(failure, Exception))  # a cancel goes first
    if failures:
        raise failures[0]


async def _close(unit: Any) -> None:
    if not hasattr(unit, "close"):
        return
    try:
        await unit.close()
    except AclError as error:
        if error.retry != "gone":  # that a lost device refuses what belongs to closing is no news
            raise
    except anyio.get_cancelled_exc_class() as cancel:
        if is_cancelled():
            raise
        raise stray(f"closing {unit!r}", cancel) from cancel
