# SPDX-License-Identifier: Apache-2.0
"""What a contender is to a workload."""

from __future__ import annotations

import abc
import ctypes
import dataclasses
import sys
from collections.abc import Awaitable
from typing import Any, ClassVar

from aioascend.bench import _rivals
from aioascend.bench.placement import Placement
from aioascend.bench.rig import ACL_DEVICE_TO_HOST, ACL_HOST_TO_DEVICE, Rig, load_acl
from aioascend.bench.settings import Settings

__all__ = ["AclContender", "Contender", "Place"]


@dataclasses.dataclass(frozen=True)
class Place:
    """What a contender is given to work with: so many streams, and as many lanes as there are concurrent coroutines."""

    settings: Settings
    placement: Placement
    streams: int
    lanes: int


class Contender(abc.ABC):
    """One way to wait for the device in an event loop.

    `copy` and `chain` submit to the stream of a lane at once and return what is awaited:

    - `copy`: 8 bytes from pinned memory to the device.
    - `chain`: 16 bytes to the device, 8 memsets of one byte each, which stand for kernels, 16 bytes back. One await,
      for the end.
    """

    name: ClassVar[str]
    trio: ClassVar[bool] = True  # whether it makes sense under trio
    events: ClassVar[bool] = False  # whether each lane needs one

    def __init__(self, place: Place) -> None:
        self.place = place
        self.lanes: list[Any] = []

    @abc.abstractmethod
    async def open(self) -> None:
        """Opens the device and makes the lanes, on the loop that is measured."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Gives everything back and ends the threads. Everything has been awaited."""

    @abc.abstractmethod
    def submit(self, lane: Any) -> object:
        """A copy that nobody awaits."""

    @abc.abstractmethod
    def copy(self, lane: Any) -> Awaitable[Any]: ...

    @abc.abstractmethod
    def chain(self, lane: Any) -> Awaitable[Any]: ...

    @abc.abstractmethod
    def read(self, lane: Any) -> tuple[memoryview, memoryview]:
        """The pinned memory of a lane: what is copied in, what came back."""

    def device_threads(self) -> list[int]:
        """Native ids of Python threads that take reports."""
        return []

    def counters(self) -> dict[str, float]:
        """Totals since it was opened: `callbacks`, `wakeups`."""
        return {}


class AclContender(Contender):
    """A contender that calls pyACL."""

    async def open(self) -> None:
        self.acl, self.flavour = load_acl(self.place.settings)
        self.rig = Rig(self.acl, self.place.streams, self.place.lanes, events=self.events)
        self.rt = self.acl.rt
        self.lanes = self.rig.lanes
        self.under_trio = under_trio()

    async def close(self) -> None:
        self.rig.close()

    def copy(self, lane: Any) -> Awaitable[None]:
        self.submit(lane)
        return self.waited_for(lane)

    def chain(self, lane: Any) -> Awaitable[None]:
        self.submit_chain(lane)
        return self.waited_for(lane)

    @abc.abstractmethod
    def waited_for(self, lane: Any) -> Awaitable[None]:
        """Done when the device is past what has been submitted to the lane's stream."""

    def submit(self, lane: Any) -> None:
        self.rt.memcpy_async(
            lane.device, _rivals.COPY_BYTES, lane.source, _rivals.COPY_BYTES, ACL_HOST_TO_DEVICE, lane.stream
        )

    def submit_chain(self, lane: Any) -> None:
        rt, device, stream, size = self.rt, lane.device, lane.stream, _rivals.LANE_BYTES
        rt.memcpy_async(device, size, lane.source, size, ACL_HOST_TO_DEVICE, stream)
        for i in range(_rivals.CHAIN_KERNELS):
            rt.memset_async(device + i, 1, i + 1, 1, stream)
        rt.memcpy_async(lane.result, size, device, size, ACL_DEVICE_TO_HOST, stream)

    def read(self, lane: Any) -> tuple[memoryview, memoryview]:
        return _host_view(lane.source), _host_view(lane.result)


def _host_view(address: int) -> memoryview:
    return memoryview((ctypes.c_ubyte * _rivals.LANE_BYTES).from_address(address)).cast("B")


def under_trio() -> bool:
    """Whether the running loop is trio's."""
    if "trio" not in sys.modules:
        return False
    import sniffio

    return sniffio.current_async_library() == "trio"
