# SPDX-License-Identifier: Apache-2.0
"""What `map` returns: the results of a source, as they become ready."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from aioascend.pipeline.items import Item
from aioascend.pipeline.run import Run

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Failed", "PipelineResults"]

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True)
class Failed(Generic[In]):
    """What stands in the place of a result with `on_error="collect"`.

    Attributes:
        item: What the source gave.
        index: The how-manieth that was, from 0.
        stage: Name of the stage that failed.
        error: With what.
    """

    item: In
    index: int
    stage: str
    error: Exception


class PipelineResults(AsyncIterator[Out]):
    """The results of one `Pipeline.map`, for `async for`. Nothing happens before the first is asked for.

    When it is dropped, as by a `break` out of `async for`, closed, or when waiting for the next result is cancelled,
    its items are given up: those in a stage are cancelled, nothing more is taken from the source. `aclose` also waits
    until none of them is in a stage any more; use `contextlib.aclosing` where that matters. An async generator that was
    the source is closed, other sources are left as they are. (One that is dropped before the first result was asked for
    is just dropped.)

    One task at a time can ask for the next result.
    """

    def __init__(self, run: Run, start: Callable[[Run], None], check_home: Callable[[], None]) -> None:
        self._run = run
        self._start = start
        self._check_home = check_home
        self._soon: Callable[[Callable[[], object]], object] | None = None
        self._asking = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Out:
        """The next result.

        Raises:
            StopAsyncIteration: there is none.
            RuntimeClosedError: the pipeline was closed before all of the source was taken, or was through.
            RuntimeError: another task is waiting for one, or this is not the pipeline's event loop.
            Exception: what a stage has raised, with `on_error="raise"`; what the source has raised. A note says which
                stage and item it was.
        """
        self._check_home()
        if self._asking:
            raise RuntimeError("another task is already waiting for the next result of this map")
        self._asking = True
        try:
            if self._soon is None and not self._run.over:
                self._start(self._run)
                self._soon = _soon()
            item = await self._run.next()
        except BaseException:
            self._run.give_up()  # over, failed or cancelled: nobody gets any more, as with an async generator
            raise
        finally:
            self._asking = False
        return self._result(item)

    def _result(self, item: Item) -> Out:
        result: Any = item.value
        if item.error is not None:
            result = Failed(item.source, item.index or 0, item.stage or "", item.error)
        return result  # type: ignore[no-any-return]

    async def aclose(self) -> None:
        """Give up what is left, and wait until none of it is in a stage. May be called again.

        Raises:
            RuntimeError: this is not the pipeline's event loop.
        """
        self._check_home()
        self._run.give_up()
        if self._soon is None:  # nobody else has had the source
            await self._run.let_go()
        await self._run.left()

    def __del__(self) -> None:
        # It may be collected anywhere, in another thread or in the middle of something.
        if self._soon is not None and not self._run.over:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._soon(self._run.give_up)


def _soon() -> Callable[[Callable[[], object]], object]:
    """What has the running loop call something soon, from anywhere."""
    try:
        return asyncio.get_running_loop().call_soon_threadsafe
    except RuntimeError:
        import trio  # it is what runs, so it is there

        return trio.lowlevel.current_trio_token().run_sync_soon
