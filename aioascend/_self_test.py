# SPDX-License-Identifier: Apache-2.0
"""The steps by which `aioascend doctor` tests a device."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aioascend.device import Device
from aioascend.errors import AclError

__all__ = ["SelfTestError", "Step", "describe_failure", "steps_for"]

COPY_BYTES = 1 << 20
ROUND_TRIPS = 100
# An ONNX file (opset 13) with the one operator y = -x, for float32 of shape [2, 3].
NEGATION = "CAg6OgoLCgF4EgF5IgNOZWcSAWdaEwoBeBIOCgwIARIICgIIAgoCCANiEwoBeRIOCgwIARIICgIIAgoCCANCBAoAEA0="


class SelfTestError(Exception):
    """The device did something, but not the right thing."""


@dataclass(frozen=True)
class Step:
    """`run` tests an open device and returns what there is to say; what it raises is what is wrong."""

    name: str
    run: Callable[[Device], Awaitable[str]]


def steps_for(kind: str, openvino: bool) -> tuple[Step, ...]:
    """The steps for a backend, in order. Models only on the simulator: an NPU needs them compiled for it."""
    steps = [Step("copy", _copy), Step("event", _event), Step("callback", _callback)]
    if kind == "sim":
        steps.append(Step("model", _model))
        if openvino:
            steps.append(Step("onnx", _onnx))
    return tuple(steps)


async def _copy(npu: Device) -> str:
    sent = np.random.default_rng(0).integers(0, 256, COPY_BYTES, dtype=np.uint8)
    received = np.zeros_like(sent)
    async with npu.create_stream() as stream:
        buffer = npu.empty_like(sent)
        stream.memcpy(buffer, sent)
        await stream.memcpy(received, buffer)
    _compare(sent, received)
    return f"{COPY_BYTES >> 20} MiB to the device and back, unchanged"


async def _event(npu: Device) -> str:
    data = np.arange(COPY_BYTES // 4, dtype=np.uint32)
    received = np.zeros_like(data)
    async with npu.create_stream() as first, npu.create_stream() as second:
        buffer = npu.empty_like(data)
        start = first.record(timing=True)
        first.memcpy(buffer, data)
        ready = first.record(timing=True)
        second.wait(ready)
        await second.memcpy(received, buffer)
        await ready
        _compare(data, received)
        if not ready.done():
            raise SelfTestError("an event that was awaited says that it is not done")
        elapsed = ready.elapsed_since(start)
    return f"one stream waited for another, {elapsed:.3f} ms between two events"


async def _callback(npu: Device) -> str:
    before = npu.statistics().reports
    async with npu.create_stream() as stream:
        buffer = npu.empty(1, "uint8")
        for value in range(ROUND_TRIPS):
            await stream.memset(buffer, value)
    reports = npu.statistics().reports - before
    if reports < ROUND_TRIPS:
        raise SelfTestError(f"{ROUND_TRIPS} operations were awaited one by one, with only {reports} reports")
    return f"{ROUND_TRIPS} operations awaited one after the other"


async def _model(npu: Device) -> str:
    tensor = {"dtype": "float32", "shape": [2, 3]}
    description = {
        "name": "doctor",
        "inputs": [{"name": "x", **tensor}],
        "outputs": [{"name": "y", "fill": "copy", **tensor}],
    }
    sent = np.arange(6, dtype=np.float32).reshape(2, 3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "doctor.json"
        path.write_text(json.dumps(description), encoding="utf-8")
        async with npu.load_model(path) as model:
            _compare(sent, np.asarray(await model(sent)))
    return "a described model loaded and run"


async def _onnx(npu: Device) -> str:
    sent = np.arange(6, dtype=np.float32).reshape(2, 3)
    async with npu.load_model(base64.b64decode(NEGATION), name="self-test.onnx") as model:
        _compare(-sent, np.asarray(await model(sent)))
    return "an ONNX model loaded and run by OpenVINO"


def _compare(sent: NDArray[Any], received: NDArray[Any]) -> None:
    wrong = np.flatnonzero(sent != received)
    if wrong.size:
        where = wrong[0]
        raise SelfTestError(
            f"{wrong.size} of {sent.size} elements came back changed, the first at {where}: "
            f"{sent.flat[where]} became {received.flat[where]}"
        )


def describe_failure(error: Exception, kind: str, patience: float) -> tuple[str, str]:
    """What went wrong, and what to do about it."""
    look = (
        "Unset AIOASCEND_SIM_PROFILE; if it fails again, report it with what `aioascend doctor --json` says."
        if kind == "sim"
        else "Look at `npu-smi info` and at the newest file in ~/ascend/log."
    )
    if isinstance(error, TimeoutError) and not isinstance(error, AclError):
        return f"no answer within {patience:g} s", f"The device may be busy or stuck; try --timeout. {look}"
    if isinstance(error, AclError):
        return str(error), look
    return f"{type(error).__name__}: {error}", look
