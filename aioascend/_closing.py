# SPDX-License-Identifier: Apache-2.0
"""What is opened is closed at the end of its block, and what is about to be opened can be awaited or entered."""

from __future__ import annotations

import asyncio
import inspect
import sys
import warnings
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

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
            message = f"unclosed {self!r}{_made_at(self._made_at)}"
            self._give_back()  # first, for whoever takes warnings for errors keeps it alive
            _warn(message, ResourceWarning, source=self)


T = TypeVar("T", bound=Closing)


class Opening(Coroutine[Any, Any, T], Generic[T]):
    """A resource about to be opened: `async with` it, or `await` it and close the resource yourself.

    It is a coroutine, so tasks, task groups and `gather` take it, it can be awaited once, and Python warns when nobody
    awaits it.
    """

    _call = ""
    _resource: T

    def __init__(self, opening: Coroutine[Any, Any, T], call: str) -> None:
        # The coroutine inside is made here, so that Python warns by the name of the call; it must not refer to this
        # object, or the warning would come with a collection of garbage.
        opening.__name__ = opening.__qualname__ = call  # type: ignore[attr-defined]
        self._opening = opening
        self._call = call

    def send(self, value: Any, /) -> Any:
        """See `collections.abc.Coroutine`, as for all that a coroutine has."""
        return self._opening.send(value)

    def throw(self, *error: Any) -> Any:
        return self._opening.throw(*error)

    def close(self) -> None:
        self._opening.close()

    def __await__(self) -> Generator[Any, Any, T]:
        if inspect.getcoroutinestate(self._opening) != inspect.CORO_CREATED:  # or two would drive it
            raise RuntimeError(
                f"{self._call}(...) is awaited already, or was: await it once, and share what comes of it"
            )
        return self._opening.__await__()

    async def __aenter__(self) -> T:
        self._resource = await self._opening
        return self._resource

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._resource.__aexit__(kind, error, traceback)

    if not TYPE_CHECKING:  # type checkers are to find what is used without an await

        def __getattr__(self, name: str) -> Any:
            if name.startswith("cr_") or name in ("__name__", "__qualname__"):  # loops show where tasks are
                return getattr(self._opening, name)
            raise AttributeError(f"{self._call}(...) has no attribute {name!r} before it is awaited: {_WAY_OUT}")

    def __repr__(self) -> str:
        return f"<{self._call}(...): {_WAY_OUT}>"


_WAY_OUT = "await it, or use async with"

F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])


def coroutine_function(function: F) -> F:
    """Lets a function that returns a coroutine count as one that is written with `async def`."""
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(function)
    function._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
    return function
