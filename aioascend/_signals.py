# SPDX-License-Identifier: Apache-2.0
"""Waiting until something is so."""

from __future__ import annotations

from collections.abc import Callable

import anyio

__all__ = ["Signal"]


class Signal:
    """Wakes those who wait until something is so, each time it may have become so. Can be made outside of a loop."""

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    def notify(self) -> None:
        """Whoever waits has a look."""
        if self._event is not None:
            self._event.set()
            self._event = None

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            if self._event is None:
                self._event = anyio.Event()
            await self._event.wait()
