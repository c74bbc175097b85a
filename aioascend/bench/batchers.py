# SPDX-License-Identifier: Apache-2.0
"""Batchers to be measured side by side: each makes of a model a function of one item."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

import aioascend as aa

__all__ = ["BATCHERS", "MAX_BATCH", "MAX_DELAY", "is_there"]

MAX_BATCH = 8
MAX_DELAY = 0.005

Ask = Callable[[NDArray[np.float32]], Awaitable[Any]]


@asynccontextmanager
async def _ours(model: aa.Model) -> AsyncIterator[Ask]:
    async with aa.Batcher(model, max_batch=MAX_BATCH, max_delay=MAX_DELAY) as batcher:
        yield batcher


@asynccontextmanager
async def _batched(model: aa.Model) -> AsyncIterator[Ask]:
    dynamically = importlib.import_module("batched.aio").dynamically
    yield dynamically(batch_size=MAX_BATCH, timeout_ms=MAX_DELAY * 1000)(_many(model))


@asynccontextmanager
async def _async_batcher(model: aa.Model) -> AsyncIterator[Ask]:
    base: Any = importlib.import_module("async_batcher.batcher").AsyncBatcher

    class OfModel(base):  # type: ignore[misc]
        process_batch = staticmethod(_many(model))

    batcher = OfModel(max_batch_size=MAX_BATCH, max_queue_time=MAX_DELAY, concurrency=2)
    try:
        yield batcher.process
    finally:
        await batcher.stop(force=True)


@asynccontextmanager
async def _ray_serve(model: aa.Model) -> AsyncIterator[Ask]:
    serve: Any = importlib.import_module("ray.serve")
    # Outside of a deployment the decorator works but for this: it warns of deployments that let in too few requests.
    deployment = SimpleNamespace(_deployment_config=SimpleNamespace(max_ongoing_requests=2 * MAX_BATCH))
    with mock.patch.object(serve, "get_replica_context", return_value=deployment):
        batch = serve.batch(max_batch_size=MAX_BATCH, batch_wait_timeout_s=MAX_DELAY, max_concurrent_batches=2)
        yield batch(_many(model))


def _many(model: aa.Model) -> Callable[[list[Any]], Awaitable[list[Any]]]:
    async def run(batch: list[Any]) -> list[Any]:
        return list(await model(np.stack(batch)))

    return run


BATCHERS: dict[str, Callable[[aa.Model], AbstractAsyncContextManager[Ask]]] = {
    "aioascend": _ours,
    "batched": _batched,
    "async-batcher": _async_batcher,
    "ray-serve": _ray_serve,
}

_MODULES = {"aioascend": "aioascend", "batched": "batched", "async-batcher": "async_batcher", "ray-serve": "ray.serve"}


def is_there(name: str) -> bool:
    """Whether it can be measured here."""
    try:
        importlib.import_module(_MODULES[name])
    except ModuleNotFoundError:
        return False
    return True
