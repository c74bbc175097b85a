# SPDX-License-Identifier: Apache-2.0
"""What is opened is closed at the end of its block, and what is about to be opened can be awaited or entered."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio

if TYPE_CHECKING:
    from typing_extensions import Self

GRACE_S = 5.0  # how long leaving a block by an exception waits for work in flight


class Closing:
    """An asynchronous context manager that closes itself."""

    async def close(self) -> None:
        """Wait for the work in flight and give the resource back."""
        raise NotImplementedError

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
