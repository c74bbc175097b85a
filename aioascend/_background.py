# SPDX-License-Identifier: Apache-2.0
"""Tasks that run beside a block."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Background"]


class Background:
    """A task group whose tasks can be cancelled without the block around which it is.

    The scope of a task group is its block's as well. To cancel that at the end of the block would do on anyio's terms,
    but up to Python 3.12 asyncio counts a cancel too many for a task in which an `asyncio.TaskGroup` has failed, and
    such a block would end by a cancel that nobody has asked for.
    """

    def __init__(self) -> None:
        self._group = anyio.create_task_group()
        self._scopes: set[anyio.CancelScope] = set()
        self._cancelled = False

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """Waits until all of them have ended."""
        return await self._group.__aexit__(kind, error, traceback)

    def start_soon(self, function: Callable[..., Awaitable[Any]], *args: Any, name: object = None) -> None:
        """For tasks only: under asyncio anyio starts none from a callback."""
        self._group.start_soon(self._run, function, args, name=name or getattr(function, "__qualname__", None))

    async def _run(self, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            if self._cancelled:
                scope.cancel()
            try:
                await function(*args)
            finally:
                self._scopes.discard(scope)

    def cancel(self) -> None:
        """All that run, and all that are yet to be started."""
        self._cancelled = True
        for scope in list(self._scopes):
            scope.cancel()
