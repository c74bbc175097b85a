# SPDX-License-Identifier: Apache-2.0
"""Where the streams of a pool come from, and where they end."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import anyio

from aioascend._arguments import whole
from aioascend._words import counted
from aioascend.device import Device
from aioascend.errors import AclError, RuntimeClosedError, error_from_code
from aioascend.stream import Stream

if TYPE_CHECKING:
    from aioascend._background import Background

__all__: list[str] = []

logger = logging.getLogger("aioascend")

_MOST = 2048  # streams that the largest devices have
_ENOUGH, _MANY = 8, 16  # see bounds_for
_RETRY_S = 10.0  # how long a device is left alone that had no stream left


def bounds(size: object) -> tuple[int, int]:
    """The fewest and the most streams."""
    if not isinstance(size, tuple):
        most = whole("size", size, 1, _MOST, "a number of streams, a pair of numbers, or None")
        return most, most
    if len(size) != 2:
        raise ValueError(f"size must be a pair, the fewest and the most streams, not {size!r}")
    least, most = (whole("size", number, 1, _MOST, "a pair of numbers of streams") for number in size)
    if least > most:
        raise ValueError(f"size must be the fewest and then the most streams, not {size!r}")
    return least, most


def bounds_for(ai_cores: int | None) -> tuple[int, int]:
    """By a rule of thumb. Eight keep a device busy that computes and copies in both directions, while others are on
    their way to the host and back; cores that compute side by side take more, and beyond sixteen little is gained."""
    return 1, _ENOUGH if ai_cores is None else max(_ENOUGH, min(2 * ai_cores, _MANY))


class Customer(Protocol):
    """The pool, as seen from here."""

    @property
    def size(self) -> int:
        """How many streams it has."""

    def _lacks(self) -> bool:
        """Whether somebody waits for a stream."""

    def _offer(self, stream: Stream) -> None:
        """Here is one."""

    def _refuse(self, error: Exception) -> None:
        """There will be none."""

    def _look(self) -> None:
        """Something has ended here."""


class Supply:
    """Makes streams as long as somebody lacks one, and closes them, in tasks of its own.

    Attributes:
        least: The fewest that are kept.
        most: How many the device is to have at the same time.
        busy: Whether a stream is on its way from the device or back to it.
        created: How many were made.
    """

    def __init__(self, device: Device, tasks: Background, customer: Customer, least: int, most: int) -> None:
        self.least = least
        self.most = most
        self.created = 0
        self._device = device
        self._tasks = tasks
        self._customer = customer
        self._creating = False
        self._leaving = 0  # on their way back, and until then the device has them
        self._pause: anyio.CancelScope | None = None
        self._warned = False

    @property
    def busy(self) -> bool:
        return self._creating or self._leaving != 0

    def grow(self) -> None:
        """If there is need and room."""
        if not self._creating and self._needed():
            self._creating = True
            self._tasks.start_soon(self._create)

    def _needed(self) -> bool:
        return self._customer._lacks() and self._customer.size + self._leaving < self.most

    async def _create(self) -> None:
        try:
            while self._needed():  # one after the other: the first that is refused is the last for now
                await self._create_one()
        except BaseException as error:  # the block has been cancelled, or the process is to end
            self._customer._refuse(RuntimeClosedError(f"the block of the pool has ended by {error!r}"))
            raise
        finally:
            self._creating = False
            self._customer._look()

    async def _create_one(self) -> None:
        try:
            stream = await self._device.create_stream()
        except Exception as error:
            await self._go_on_without(error)
        else:
            self.created += 1
            self._customer._offer(stream)

    async def _go_on_without(self, error: Exception) -> None:
        """Those who wait get one of those that there are; the error, if there is none or the device has gone."""
        if not isinstance(error, AclError) or error.retry == "gone":
            self._customer._refuse(error)
        elif not self._customer.size + self._leaving:
            self._customer._refuse(self._none_at_all(error))
        else:
            if not self._warned:
                self._warned = True
                got, name = self._customer.size, f"a pool of device {self._device.index}"
                logger.warning(
                    "%s wanted %d streams and got %d, with which it goes on: %s", name, self.most, got, str(error)
                )
            with anyio.move_on_after(_RETRY_S) as self._pause:
                await anyio.sleep_forever()

    def rest(self) -> None:
        """Nobody lacks a stream, or there is one to be had: there is nothing to wait for."""
        if self._pause is not None:
            self._pause.cancel()

    def _none_at_all(self, error: AclError) -> AclError:
        said = f"{error.detail.rstrip('.')}. " if error.detail else ""
        detail = f"{said}The pool wanted {counted(self.most, 'stream')} and could not make a single one"
        told = error_from_code(error.code, error.where, detail, device=self._device.index)
        told.__cause__ = error
        return told

    def close(self, stream: Stream) -> None:
        """Gives it back to the device, in the background."""
        self._leaving += 1
        self._tasks.start_soon(self._destroy, stream)

    async def _destroy(self, stream: Stream) -> None:
        try:
            await stream.close()
        except Exception as error:
            if getattr(error, "retry", "") != "gone":  # or it has gone with the device
                logger.warning("a pool of device %d could not close a stream: %s", self._device.index, str(error))
        finally:
            self._leaving -= 1
            self.rest()
            self.grow()
            self._customer._look()
