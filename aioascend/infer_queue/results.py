# SPDX-License-Identifier: Apache-2.0
"""The results of a queue, as they come."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from aioascend.infer_queue.requests import Requests

__all__ = ["Results"]


class Results(AsyncIterator[tuple[int, Any]]):
    """What has ended, for loops. No generator, for one that is left early would leave that behind."""

    def __init__(self, requests: Requests, check_home: Callable[[], None]) -> None:
        self._requests = requests
        self._check_home = check_home

    async def __anext__(self) -> tuple[int, Any]:
        self._check_home()
        requests = self._requests
        requests.streaming = True
        await requests.changed.until(lambda: requests.kept or requests.finished)
        if not requests.kept:
            raise StopAsyncIteration
        request = next(iter(requests.kept.values()))
        requests.take(request)
        return request.id, request.result if request.error is None else request.told()
