# SPDX-License-Identifier: Apache-2.0
"""Ends the process when nothing moves any more, and says where everybody stands."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

    from aioascend.soak.rounds import Round

__all__ = ["Watchdog"]

PATIENCE_S = 60.0
SPARE_S = 10.0  # for when the interpreter itself is stuck
FAILED = 1


class Watchdog:
    """A thread that watches the heartbeat of a round."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._patience = PATIENCE_S
        self._round: Round | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="aioascend-watch", daemon=True)

    def watch(self, of: Round | None) -> None:
        """From here on this one, or none."""
        self._round = of

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        faulthandler.cancel_dump_traceback_later()

    def _run(self) -> None:
        seen: tuple[int, int] | None = None
        since = time.monotonic()
        while not self._stop.wait(self._patience / 60):
            # Does what is done here, should this thread not get to it.
            faulthandler.dump_traceback_later(self._patience + SPARE_S, exit=True)
            beat = None if self._round is None else (id(self._round), self._round.heartbeat)
            if beat != seen:
                seen, since = beat, time.monotonic()
            elif time.monotonic() - since > self._patience:
                self._give_up()

    def _give_up(self) -> None:
        number = "between rounds" if self._round is None else f"in round {self._round.plan.number}"
        print(f"aioascend soak: nothing moves {number}, seed {self._seed}", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(sys.stderr, all_threads=True)
        for loop in [] if self._round is None else self._round.loops:
            for task in asyncio.all_tasks(loop):
                print(f"{task.get_name()}: {_stack_of(task)}", file=sys.stderr, flush=True)
        os._exit(FAILED)


def _stack_of(task: asyncio.Task[Any]) -> str:
    """Where a suspended task stands: the coroutines that await each other."""
    stack = []
    coroutine: Any = task.get_coro()
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        stack.append(f"{frame.f_code.co_name}:{frame.f_lineno}" if frame else repr(coroutine))
        coroutine = getattr(coroutine, "cr_await", None)
    return " > ".join(stack)
