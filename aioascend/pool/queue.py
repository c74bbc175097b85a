# SPDX-License-Identifier: Apache-2.0
"""Who waits for a stream, in the order of their turns."""

from __future__ import annotations

import itertools
from bisect import insort
from dataclasses import dataclass, field

import anyio

from aioascend import _debug
from aioascend._deadlines import turn_of
from aioascend.stream import Stream

__all__: list[str] = []


@dataclass(eq=False)
class Request:
    """For a stream. Once it has been in a queue, it has got one of the two, or has left it."""

    limit: float
    priority: int
    made_at: _debug.Stack | None
    turn: tuple[float, int] = (0.0, 0)
    stream: Stream | None = None
    error: Exception | None = None
    ready: anyio.Event = field(init=False)

    def end(self, stream: Stream | None, error: Exception | None = None) -> None:
        """Wakes the one who waits."""
        self.stream, self.error = stream, error
        self.ready.set()


class Queue:
    """A request is in it until it is given something: that and leaving are one step, so nothing is given twice."""

    def __init__(self, ageing: float) -> None:
        self._ageing = ageing
        self._numbers = itertools.count()
        self._requests: list[Request] = []

    def __len__(self) -> int:
        return len(self._requests)

    def join(self, request: Request, now: float) -> None:
        """Behind those who come before it."""
        request.ready = anyio.Event()
        request.turn = (turn_of(now, request.priority, self._ageing), next(self._numbers))
        insort(self._requests, request, key=lambda one: one.turn)

    def leave(self, request: Request) -> None:
        """Without having been given anything."""
        self._requests.remove(request)

    def next(self) -> Request | None:
        """Whose turn it is; no longer in the queue."""
        return self._requests.pop(0) if self._requests else None

    def refuse(self, error: Exception) -> None:
        """All of them."""
        requests, self._requests = self._requests, []
        for request in requests:
            request.end(None, error)
