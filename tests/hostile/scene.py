# SPDX-License-Identifier: Apache-2.0
"""Devices that are given nonsense: it is refused with one clear error, and nothing has happened."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import aioascend as aa
from aioascend.testing import Simulator

COPY = b"""
[[inputs]]
name = "x"
shape = [2, 8]
[[outputs]]
name = "y"
shape = [2, 8]
fill = "copy"
"""

SUBMITTING = (
    "aclrtMemcpyAsync",
    "aclrtMemsetAsync",
    "aclrtRecordEvent",
    "aclrtStreamWaitEvent",
    "aclrtLaunchCallback",
    "aclmdlExecuteAsync",
    "aclmdlExecute",
)
LIVE = ("streams", "events", "models", "datasets", "device_blocks", "host_blocks", "tasks")


@dataclass
class Scene:
    sim: Simulator
    npu: aa.Device
    stream: aa.Stream
    elsewhere: aa.Device
    its_stream: aa.Stream
    model: aa.Model

    def state(self) -> dict[str, object]:
        """All that a call which is refused has to leave as it was."""
        return {
            **{function: self.sim.calls(function) for function in SUBMITTING},
            **{what: self.sim.live(what) for what in LIVE},
            "devices": (self.npu.statistics(), self.elsewhere.statistics()),
        }

    async def refuses(self, call: Callable[[], Any], error: type[Exception], message: str) -> None:
        """Exactly this error, with this in its message, and not a trace of the attempt."""
        before = self.state()
        try:
            result = call()
            if inspect.isawaitable(result):
                await result
        except Exception as raised:
            kind, text = type(raised), str(raised)
        else:
            pytest.fail(f"not refused; it should have been a {error.__name__}: {message}")
        assert kind is error, text
        assert re.search(message, text), text
        assert self.state() == before

    async def works(self) -> None:
        """Copies and runs of a model, on both devices."""
        x = np.arange(16, dtype="float32").reshape(2, 8)
        assert (await self.model(x) == x).all()
        for device, stream in ((self.npu, self.stream), (self.elsewhere, self.its_stream)):
            buffer, target = device.empty_like(x), np.zeros_like(x)
            stream.memcpy(buffer, x)
            await stream.memcpy(target, buffer)
            assert (target == x).all()
            assert stream.query()
