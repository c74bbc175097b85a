# SPDX-License-Identifier: Apache-2.0
"""First calls of a model of dynamic shape.

The library cannot say how large the outputs will be. So the first call with a combination of input shapes lets it
allocate them (aclmdlExecute, in a worker thread) and remembers their sizes; later ones are submitted as others are.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aioascend import _debug
from aioascend._calls import Calls
from aioascend._instances import chain
from aioascend._places import Places
from aioascend._threads import run_blocking

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from aioascend._native import Operation
    from aioascend.model import Model

__all__ = ["FirstCalls"]

Shapes = tuple[tuple[int, ...], ...]

_REMEMBERED = 256


class FirstCalls:
    """Lets in one first call at a time, and remembers what it has found out.

    Attributes:
        turns: Whose turn it is.
    """

    def __init__(self) -> None:
        self.turns = Places(1)
        self._sizes: dict[Shapes, list[int]] = {}

    def sizes(self, shapes: Shapes) -> list[int] | None:
        """Bytes of each output; None if there was no call with these shapes yet."""
        return self._sizes.get(shapes)

    async def make(
        self, model: Model, shapes: Shapes, arrays: Sequence[NDArray[Any]], where: _debug.Stack | None
    ) -> list[NDArray[Any]]:
        """The first call with these shapes. Its turn, which has come, is over with it."""
        copies: list[Operation] = []
        try:
            await model._calls.enter()
        except BaseException:
            self.turns.give_back()
            raise
        try:
            with _debug.called_at(where):
                buffers = [model._empty(array.shape, array.dtype) for array in arrays]
                copies += (model.stream.memcpy(to, array) for to, array in zip(buffers, arrays, strict=True))
            await chain(copies)
            await model._hold_runs()  # what is submitted from here on waits until this run is over
            run = model._run(model, buffers, [None] * len(model.output_infos))
        except BaseException:
            self._end(model)
            model._calls.leave_behind(copies)
            raise
        stay = _Stay(model._calls)

        def execute() -> list[NDArray[Any]]:
            if not stay.begin():
                return []
            try:
                run.execute_now()
                return run.take_system_outputs(model.output_infos)
            finally:
                self._end(model)
                stay.end()

        try:
            results = await run_blocking(execute)
        except BaseException:
            if stay.give_up():
                self._end(model)
            raise
        model._calls.leave()
        if len(self._sizes) >= _REMEMBERED:
            self._sizes.pop(next(iter(self._sizes)))
        self._sizes[shapes] = [max(1, result.nbytes) for result in results]
        return results

    def _end(self, model: Model) -> None:
        model._release_runs()
        self.turns.give_back()


class _Stay:
    """A call that goes on in a thread when it is cancelled, and keeps its place until it is over there."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._lock = threading.Lock()
        self._begun = self._over = self._given_up = False

    def begin(self) -> bool:
        """In the thread. False: nobody wants it any more."""
        with self._lock:
            self._begun = not self._given_up
            return self._begun

    def end(self) -> None:
        """In the thread: it is over."""
        with self._lock:
            self._over = True
            if self._given_up:
                self._calls.is_past()

    def give_up(self) -> bool:
        """By the caller, who has an error or is cancelled. True: the thread never comes to it."""
        with self._lock:
            self._given_up = True
            if self._begun and not self._over:
                self._calls.abandon()
            else:
                self._calls.leave()
            return not self._begun
