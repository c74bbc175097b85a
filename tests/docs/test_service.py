# SPDX-License-Identifier: Apache-2.0
"""The class of docs/service.md, as it stands there, with many requests under way when there is trouble."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import aioascend as aa
from aioascend.testing import Simulator, simulator

PAGE = Path(__file__).resolve().parents[2] / "docs" / "service.md"
MODEL = '[[inputs]]\nname = "x"\nshape = [4]\n[[outputs]]\nname = "y"\nshape = [4]\nfill = "copy"\n'
REQUESTS = 50

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def sim() -> Simulator:
    sim = simulator("sim")
    sim.reset()
    return sim


@pytest.fixture
def detector_class() -> Any:
    namespace: dict[str, Any] = {}
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    exec(code, namespace)  # noqa: S102 - it is ours
    return namespace["Detector"]


async def check_answers(detector: Any, sim: Simulator, trouble: Callable[[aa.Stream], None]) -> None:
    async def request(index: int) -> None:
        answer = await detector(np.full(4, index, "float32"))
        assert (answer == index).all()

    await detector(np.zeros(4, "float32"))
    stream = detector.model.stream
    sim.hold(stream)
    async with anyio.create_task_group() as group:
        for index in range(REQUESTS):
            group.start_soon(request, index)
        while detector.model.statistics().calls < 1 + REQUESTS:
            await anyio.lowlevel.checkpoint()
        trouble(stream)


async def test_every_request_is_answered_after_a_loss(
    sim: Simulator, detector_class: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    naps = 0

    async def sleep(_: float) -> None:
        nonlocal naps
        naps += 1
        if naps == 3:
            sim.restore_device(1)
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(anyio, "sleep", sleep)
    path = tmp_path / "model.toml"
    path.write_text(MODEL, encoding="utf-8")
    async with aa.open_device(1, backend="sim") as npu:
        detector = detector_class(npu, str(path))
        before = sim.calls("aclrtResetDeviceForce")
        await check_answers(detector, sim, lambda _: sim.lose_device(1))
        assert naps == 3
        assert sim.calls("aclrtResetDeviceForce") == before + 4  # three in vain, and one for all requests together


async def test_every_request_is_answered_after_a_failed_run(
    sim: Simulator, detector_class: Any, tmp_path: Path
) -> None:
    def fail(stream: aa.Stream) -> None:
        sim.fail_task(stream=stream, nth=20, code=207018)  # which may succeed later
        sim.release(stream)

    path = tmp_path / "model.toml"
    path.write_text(MODEL, encoding="utf-8")
    async with aa.open_device(1, backend="sim") as npu:
        detector = detector_class(npu, str(path))  # which is there until the device closes its model
        await check_answers(detector, sim, fail)
