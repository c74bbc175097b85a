# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import aioascend as aa
from aioascend.testing import Simulator
from hostile.scene import COPY, Scene
from runtime.conftest import npu, other, sim, stream  # noqa: F401 - fixtures; `sim` is the balance check


@pytest.fixture(scope="module", autouse=True)
def quick_collections() -> Iterator[None]:
    """What is there before a module's first test stays: the collection that each test ends with need not look at it."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


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
