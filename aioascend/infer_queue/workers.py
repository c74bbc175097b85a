# SPDX-License-Identifier: Apache-2.0
"""Those who serve the requests of a queue, and what ends a request other than its handler."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from aioascend._cancels import is_cancelled, stray
from aioascend.errors import RuntimeClosedError
from aioascend.infer_queue.requests import Request, Requests

__all__ = ["Workers", "cancelled"]


class Workers:
    """Serve the requests, each one at a time.

    Attributes:
        broken: What has ended one of them, and with it all.
    """

    def __init__(self, handler: Callable[[Any], Awaitable[Any]], requests: Requests) -> None:
        self._handler = handler
        self._requests = requests
        self.broken: BaseException | None = None

    async def work(self) -> None:
        """Until the queue is closing and none are left."""
        requests = self._requests
        try:
            while True:
                request = requests.begin()
                if request is not None:
                    await self._serve(request)
                elif requests.state != "open":
                    return
                else:
                    event = anyio.Event()
                    requests.idle.append(event)
                    await event.wait()
        except BaseException as error:
            # Nobody is left who would begin with what waits, be it that the block is cancelled.
            if not isinstance(error, anyio.get_cancelled_exc_class()):
                self.broken = error
            requests.close("closed")
            self.give_up(requests.waiting)
            raise

    async def _serve(self, request: Request) -> None:
        requests = self._requests
        try:
            with anyio.CancelScope(deadline=request.deadline) as request.scope:
                result = await self._handler(request.value)
                requests.end(request, "ok", result)
                return
            if request.cancelled is not None:
                requests.end(request, "cancelled", error=request.cancelled)
            else:
                requests.end(request, "timed_out", error=request.late(requests.now()))
        except Exception as error:
            requests.end(request, "failed", error=error)
        except anyio.get_cancelled_exc_class() as error:
            if is_cancelled(in_doubt=False):
                requests.end(request, "cancelled", error=self._left(request))
                raise
            requests.end(request, "failed", error=stray(f"the handler of request {request.id}", error))
        except BaseException as error:
            self.broken = error
            requests.end(request, "failed", error=self._left(request))
            raise

    # --- from outside ---

    def cancel(self, request: Request, reason: Exception) -> None:
        if request.state == "running":
            request.cancelled = reason
            if request.scope is not None:
                request.scope.cancel()
        else:
            self._requests.end(request, "cancelled", error=reason)

    def withdraw(self, request: Request) -> None:
        """Whoever has made it has gone."""
        request.forgotten = True
        if request.over:
            self._requests.take(request)
        else:
            self.cancel(request, cancelled(request))

    def give_up(self, requests: list[Request]) -> None:
        """Those that waited and have not begun, and those that run."""
        for request in requests:
            self.cancel(request, self._left(request))

    def _left(self, request: Request) -> Exception:
        how = "under way" if request.state == "running" else "waiting"
        error = RuntimeClosedError(f"the queue was closed at once, when request {request.id} was {how}")
        error.__cause__ = self.broken
        return error


def cancelled(request: Request) -> Exception:
    return concurrent.futures.CancelledError(f"request {request.id} of the queue was cancelled")
