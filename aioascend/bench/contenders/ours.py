# SPDX-License-Identifier: Apache-2.0
"""This runtime: operations are awaited."""

from __future__ import annotations

import dataclasses
from typing import Any

import aioascend
from aioascend import _native
from aioascend.bench import _rivals
from aioascend.bench.contenders.base import Contender

__all__ = ["Aioascend", "OurLane"]


@dataclasses.dataclass(frozen=True, slots=True)
class OurLane:
    """As `RigLane`, with the runtime's own objects."""

    stream: aioascend.Stream
    device: aioascend.DeviceBuffer
    front: aioascend.DeviceBuffer  # what a copy alone fills
    bytes: tuple[aioascend.DeviceBuffer, ...]  # what the memsets of a chain set
    source: aioascend.PinnedBuffer
    source_front: aioascend.PinnedBuffer
    result: aioascend.PinnedBuffer


class Aioascend(Contender):
    name = "aioascend"

    async def open(self) -> None:
        self._device = await aioascend.open_device(0)
        self.streams = [await self._device.create_stream() for _ in range(self.place.streams)]
        size, copied, lanes = _rivals.LANE_BYTES, _rivals.COPY_BYTES, self.place.lanes
        memory = self._device.empty(lanes * size, "uint8")
        host = await self._device.pinned(2 * lanes * size, "uint8")
        self.lanes = []
        for i in range(lanes):
            device = memory[i * size : (i + 1) * size]
            source = host[2 * i * size : (2 * i + 1) * size]
            self.lanes.append(
                OurLane(
                    stream=self.streams[i % len(self.streams)],
                    device=device,
                    front=device[:copied],
                    bytes=tuple(device[k : k + 1] for k in range(_rivals.CHAIN_KERNELS)),
                    source=source,
                    source_front=source[:copied],
                    result=host[(2 * i + 1) * size : (2 * i + 2) * size],
                )
            )

    async def close(self) -> None:
        self.lanes = []
        await self._device.close()

    def submit(self, lane: Any) -> aioascend.Operation:
        return self.copy(lane)

    def copy(self, lane: Any) -> aioascend.Operation:
        operation: aioascend.Operation = lane.stream.memcpy(lane.front, lane.source_front)
        return operation

    def chain(self, lane: Any) -> aioascend.Operation:
        stream = lane.stream
        stream.memcpy(lane.device, lane.source)
        for value, byte in enumerate(lane.bytes, 1):
            stream.memset(byte, value)
        operation: aioascend.Operation = stream.memcpy(lane.result, lane.device)
        return operation

    def read(self, lane: Any) -> tuple[memoryview, memoryview]:
        return memoryview(lane.source.array), memoryview(lane.result.array)

    def counters(self) -> dict[str, float]:
        bridge = _native.running_bridge()
        wakeups = 0 if bridge is None else bridge.wakeups
        return {"callbacks": self._device.statistics().reports, "wakeups": wakeups}
