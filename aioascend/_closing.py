# SPDX-License-Identifier: Apache-2.0
"""What is opened is closed at the end of its block, and what is about to be opened can be awaited or entered."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio

from aioascend import _debug, _native

if TYPE_CHECKING:
    from typing_extensions import Self

GRACE_S = 5.0  # how long leaving a block by an exception waits for work in flight


class Closing:
    """An asynchronous context manager that closes itself, and warns when it is dropped without."""

    _to_be_closed = False  # it is there, and its user has to see to that
    _made_at: _debug.Stack | None = None  # in debug mode

    @property
    def closed(self) -> bool:
        """Whether it takes no more work."""
        raise NotImplementedError

    def _give_back(self) -> None:
        """What can be done when it is dropped, without waiting."""

    async def close(self) -> None:
        """Wait for the work in flight and give the resource back."""
        raise NotImplementedError

    def _dropped(self) -> None:
        """Nobody refers to it any more, and the collector has not yet taken it apart."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:
            with anyio.move_on_after(GRACE_S, shield=True):
                await self.close()

    # What it needs is bound here, for it may be called when the interpreter has cleared the module.
    def __del__(
        self,
        _warn: Callable[..., None] = warnings.warn,
        _going_away: Callable[[], bool] = _native.going_away,
        _made_at: Callable[[_debug.Stack | None], str] = _debug.made_at,
    ) -> None:
        self._dropped()
        if self._to_be_closed and not self.closed and not _going_away():
            self._give_back()  # first, for whoever takes warnings for errors keeps it alive
            _warn(f"unclosed {self!r}{_made_at(self._made_at)}", ResourceWarning, source=self)


T = TypeVar("T", bound=Closing)


class Opening(Generic[T]):
    """A resource about to be opened: `async with` it, or `await` it and close the resource yourself."""

    _resource: T

    async def _open(self) -> T:
        raise NotImplementedError

    def __await__(self) -> Generator[object, None, T]:
        return self._open().__await__()

    async def __aenter__(self) -> T:
        self._resource = await self._open()
        return self._resource

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._resource.__aexit__(kind, error, traceback)
