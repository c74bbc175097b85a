# SPDX-License-Identifier: Apache-2.0
"""The items that are in a pipeline, and the account that is kept of them."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

import anyio

from aioascend._cancels import is_cancelled, stray
from aioascend._signals import Signal

if TYPE_CHECKING:
    from aioascend.pipeline.workers import Workers

End = Literal["ok", "failed", "cancelled", "timed_out"]


class Ledger:
    """Which items there are, and how many have ended how."""

    def __init__(self) -> None:
        self.submitted = 0
        self.rejected = 0
        self.counts: Counter[str] = Counter()
        self.live: set[Item] = set()
        self.changed = Signal()  # an item has ended, or has left a stage


class Owner:
    """Who gets what becomes of items: a call, or a map."""

    inside = 0  # how many of its items are in the function of a stage, given up or not

    def ended(self, item: Item) -> None:
        """An item has come to its end."""
        raise NotImplementedError

    def drops_failures(self) -> bool:
        """Whether items that have failed are left out."""
        return False


class Item:
    """What passes through the stages. It ends once, by whoever is first: a stage, its owner, or the pipeline.

    Attributes:
        value: What goes into the next stage; in the end the result.
        index: The how-manieth of its source; None for a call's.
        source: What it was, where somebody may ask for it.
        gives_up_at: When its own time limit ends, on the loop's clock; then nothing more is started for it.
        deadline: The same of the scopes around its caller.
        scope: Around the function that it is in, if that can be cancelled.
        queue: The workers that it is waiting for.
        started: Whether it has come to a stage.
        stage: Name of the stage that failed.
        error: With what it failed.
        for_all: Whether this error is more than the item's own, so that no policy for items applies.
    """

    __slots__ = (
        "deadline", "error", "for_all", "gives_up_at", "index", "ledger", "owner", "queue", "scope", "source", "stage",
        "started", "state", "value",
    )  # fmt: skip

    def __init__(
        self,
        ledger: Ledger,
        owner: Owner,
        value: Any,
        *,
        index: int | None = None,
        source: Any = None,
        gives_up_at: float = math.inf,
        deadline: float = math.inf,
    ) -> None:
        self.ledger = ledger
        self.owner = owner
        self.value = value
        self.index = index
        self.source = source
        self.gives_up_at = gives_up_at
        self.deadline = deadline
        self.scope: anyio.CancelScope | None = None
        self.queue: Workers | None = None
        self.stage: str | None = None
        self.error: Exception | None = None
        self.for_all = False
        self.state = "waiting"
        self.started = False
        ledger.submitted += 1
        ledger.counts["waiting"] += 1
        ledger.live.add(self)

    @property
    def ended(self) -> bool:
        return self.state not in ("waiting", "running")

    def move(self, state: Literal["waiting", "running"]) -> None:
        self.ledger.counts[self.state] -= 1
        self.ledger.counts[state] += 1
        self.state = state
        self.started = self.started or state == "running"

    def is_late(self) -> bool:
        """Ends it when its time is over; its owner is about to hear of that, but may not have yet."""
        if self.last_moment == math.inf or self.last_moment > anyio.current_time():
            return False
        self.expire()
        return True

    @property
    def last_moment(self) -> float:
        return min(self.gives_up_at, self.deadline)

    def expire(self) -> None:
        """Its time is over."""
        self.end("timed_out" if self.gives_up_at <= self.deadline else "cancelled")

    def end(
        self, state: End, error: Exception | None = None, *, stage: str | None = None, for_all: bool = False
    ) -> None:
        """It has come to its end, unless it had before. Its stage, if it is in one, is cancelled."""
        if self.ended:
            return
        self.ledger.counts[self.state] -= 1
        self.ledger.counts[state] += 1
        self.state = state
        self.error, self.stage, self.for_all = error, stage, for_all
        self.ledger.live.discard(self)
        if self.queue is not None:
            self.queue.given_up()
            self.queue = None
        if self.scope is not None:
            self.scope.cancel()
        if state != "ok":
            self.value = None
        self.owner.ended(self)
        self.ledger.changed.notify()


def told(error: BaseException, what: str) -> Exception:
    """What came out of `what`, for whoever is to be told of it; raises it if it is this task that is to end."""
    if isinstance(error, StopAsyncIteration):  # which would end the loop over the results
        stopped = RuntimeError(f"{what} has raised StopAsyncIteration")
        stopped.__cause__ = error
        return stopped
    if isinstance(error, Exception):
        return error
    if isinstance(error, anyio.get_cancelled_exc_class()) and not is_cancelled(in_doubt=False):
        return stray(what, error)
    raise error
