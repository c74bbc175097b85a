# SPDX-License-Identifier: Apache-2.0
"""The workers of a stage, and the queue in front of them."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.abc
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from aioascend._debug import add_note
from aioascend.pipeline.items import Item, told
from aioascend.pipeline.stage import Stage
from aioascend.pipeline.statistics import StageStatistics


class Workers:
    """Runs a stage, as many items at the same time as it has workers, and hands on to the next one."""

    _send: MemoryObjectSendStream[Item]
    _receive: MemoryObjectReceiveStream[Item]

    def __init__(self, stage: Stage[Any, Any], following: Workers | None) -> None:
        self.stage = stage
        self._following = following
        self._left = stage.concurrency
        self._scopes: list[anyio.CancelScope] = []
        self._waiting = self._running = self._done = self._failed = self._skipped = self._cancelled = 0
        self._busy = 0.0

    # --- from outside ---

    def open(self) -> None:
        """Before anything is put in, and before `work`."""
        self._send, self._receive = anyio.create_memory_object_stream[Item](self.stage.queue_limit)

    async def put(self, item: Item) -> None:
        """Hands an item over, as soon as there is room."""
        self._waiting += 1
        item.queue = self
        try:
            self._send.send_nowait(item)
        except anyio.WouldBlock:
            with anyio.CancelScope() as scope:  # when the item ends meanwhile, nobody has to wait for its place
                item.scope = scope
                try:
                    await self._send.send(item)
                finally:
                    if item.scope is scope:  # it is not yet with a worker
                        item.scope = None

    def given_up(self) -> None:
        """An item that was waiting here has ended."""
        self._waiting -= 1
        self._cancelled += 1

    @property
    def running(self) -> int:
        return self._running

    def finish(self) -> None:
        """Nothing more will come: the workers end when the queue is empty, and so do those of the stages behind."""
        self._send.close()

    def stop(self) -> None:
        """The workers end at once."""
        for scope in self._scopes:
            scope.cancel()

    def close(self) -> None:
        """No worker is left."""
        self._send.close()
        self._receive.close()

    def statistics(self) -> StageStatistics:
        return StageStatistics(
            name=self.stage.name,
            waiting=self._waiting,
            running=self._running,
            done=self._done,
            failed=self._failed,
            skipped=self._skipped,
            cancelled=self._cancelled,
            busy_seconds=self._busy,
        )

    # --- a worker ---

    async def work(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Serves the queue until it is finished or stopped. Started once it has what it needs."""
        with anyio.CancelScope() as scope:
            self._scopes.append(scope)
            async with self.stage.calling() as call:
                task_status.started()
                await self._serve(call)
        self._left -= 1
        if self._left == 0 and self._following is not None:
            self._following.finish()

    async def _serve(self, call: Callable[[Any], Awaitable[Any]]) -> None:
        while True:
            try:
                item = self._receive.receive_nowait()
            except anyio.WouldBlock:
                try:
                    item = await self._receive.receive()
                except anyio.EndOfStream:
                    return
            except anyio.EndOfStream:
                return
            if item.ended or item.is_late():
                continue
            if await self._run(item, call):
                if self._following is None:
                    item.end("ok")
                else:
                    item.move("waiting")
                    await self._following.put(item)

    async def _run(self, item: Item, call: Callable[[Any], Awaitable[Any]]) -> bool:
        """Whether the item goes on."""
        item.queue = None
        item.move("running")
        self._waiting -= 1
        self._running += 1
        item.owner.inside += 1
        started = anyio.current_time()
        try:
            with anyio.CancelScope(deadline=math.inf if self.stage.thread else item.last_moment) as scope:
                item.scope = None if self.stage.thread else scope
                item.value = await call(item.value)
            if scope.cancelled_caught:
                item.expire()  # unless its owner has ended it
        except BaseException as error:
            item.scope = None
            try:
                failure = told(error, f"stage {self.stage.name!r}")
            except BaseException:  # the worker itself is to end
                self._cancelled += 1
                raise
            if not item.ended:
                add_note(failure, f"in stage {self.stage.name!r}{_of(item)}")
                self._failed += 1
                self._skipped += item.owner.drops_failures()
                item.end("failed", failure, stage=self.stage.name)
                return False
        finally:
            item.scope = None
            item.owner.inside -= 1
            self._running -= 1
            self._busy += anyio.current_time() - started
            item.ledger.changed.notify()
        if item.ended:
            self._cancelled += 1
            return False
        self._done += 1
        return True


def _of(item: Item) -> str:
    return "" if item.index is None else f" of item {item.index}"
