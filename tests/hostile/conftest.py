# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import aioascend as aa
from aioascend.testing import Simulator
from hostile.scene import COPY, Scene
from runtime.conftest import npu, other, sim, stream  # noqa: F401 - fixtures; `sim` is the balance check


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": False}


@pytest.fixture
async def scene(sim: Simulator, npu: aa.Device, stream: aa.Stream) -> AsyncIterator[Scene]:  # noqa: F811
    """A device to mistreat, and a second one. In the end both still have to work."""
    async with (
        aa.open_device(1, backend="sim") as elsewhere,
        elsewhere.create_stream() as its_stream,
        await npu.load_model(COPY, name="copy") as model,
    ):
        scene = Scene(sim, npu, stream, elsewhere, its_stream, model)
        await scene.works()
        yield scene
        await scene.works()
        del scene.model  # pytest keeps the scene for longer than the balance check waits
