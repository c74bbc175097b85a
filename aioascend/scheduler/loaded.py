# SPDX-License-Identifier: Apache-2.0
"""Units that a scheduler makes itself, one on each of its devices."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio

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

    async def __aenter__(self) -> Scheduler[U]:
        loaded: dict[int, U] = {}
        failures: list[Exception] = []

        async def load(index: int, device: Device) -> None:
            try:
                loaded[index] = await self._load(device)
            except Exception as error:
                failures.append(error)
                group.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as group:
                for index, device in enumerate(self._devices):
                    group.start_soon(load, index, device)
            if failures:
                raise failures[0]
            self._units = [loaded[index] for index in range(len(self._devices))]
            self._scheduler = self._make(self._units, self._load_again)
            return await self._scheduler.__aenter__()
        except BaseException:
            with anyio.move_on_after(GRACE_S, shield=True):
                await self._close(list(loaded.values()))
            raise

    async def _load_again(self, unit: U) -> U:
        index = next(index for index, one in enumerate(self._units) if one is unit)
        device = self._devices[index]
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
                await self._close(self._units)

    async def _close(self, units: Sequence[U]) -> None:
        failures: list[Exception] = []
        for unit in units:
            try:
                await _close(unit)
            except Exception as error:  # noqa: PERF203 - the others are closed all the same
                failures.append(error)
        if failures:
            raise failures[0]


async def _close(unit: Any) -> None:
    if hasattr(unit, "close"):
        try:
            await unit.close()
        except AclError as error:
            if error.retry != "gone":  # that a lost device refuses what belongs to closing is no news
                raise
