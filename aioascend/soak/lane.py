# SPDX-License-Identifier: Apache-2.0
"""A lane: a coroutine that does its share of the plan, on buffers of its own and on streams it shares with others."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING

from aioascend import AclError, Device, RuntimeClosedError
from aioascend._native import PinnedBuffer
from aioascend.soak.awaiting import ENDINGS, abandon
from aioascend.soak.contents import TAGS
from aioascend.soak.errands import run_errand
from aioascend.soak.home import Home, copied
from aioascend.soak.ledger import Place, Submission
from aioascend.soak.models import SharedModel
from aioascend.soak.plan import Act, Chain, Errand

if TYPE_CHECKING:
    from aioascend.soak.rounds import Round

__all__ = ["Lane"]

AFTER_LOSS = 3  # steps that a lane goes on with when the device is lost

# What kind of task an act submits, for faults that are meant for it.
KINDS = {
    "write": "memcpy_h2d",
    "pinned write": "memcpy_h2d",
    "fill": "memset",
    "copy": "memcpy_d2d",
    "run": "execute",
    "read": "memcpy_d2h",
    "pinned read": "memcpy_d2h",
    "handover": "event_record",
    "large write": "memcpy_h2d",
    "large read": "memcpy_d2h",
    "fresh buffer": "memcpy_h2d",
}


class Lane:
    """Does the steps of one lane.

    Attributes:
        homes: Its two streams.
        patterns: Pinned memory to write from.
        shared: A model that it runs besides its own.
    """

    homes: tuple[Home, Home]

    def __init__(
        self, of: Round, npu: Device, place: Place, index: int, patterns: PinnedBuffer, shared: SharedModel | None
    ) -> None:
        self.round = of
        self.npu = npu
        self.ledger = of.ledger
        self.place = place
        self.index = index
        self.patterns = patterns
        self.shared = shared

    async def run(self, steps: Iterator[tuple[int, Chain | Errand]]) -> None:
        """Do all steps; or, when the device is lost, a few that are left, and then, where that is planned, reset it."""
        after_loss = AFTER_LOSS
        loss = self.round.plan.loss
        step: Chain | Errand | None = None
        try:
            for number, step in steps:
                if loss == (self.index, number):
                    self.round.lose_device()
                after_loss -= self.ledger.gone
                if after_loss < 0:
                    break
                await self._do(step)
            if self.ledger.gone and loss is not None and loss[0] == self.index:
                await self.round.reset_device()
        except Exception:
            self.ledger.problem(f"lane {self.index} ended by an exception at {step}\n{traceback.format_exc()}")

    async def _do(self, step: Chain | Errand) -> None:
        """Whatever of it is refused ends it, and is noted; a launch that is refused does not even end a chain."""
        before = self.ledger.now(self.place)
        try:
            if isinstance(step, Chain):
                await self._chain(step)
            else:
                await run_errand(self, step)
        except (AclError, RuntimeClosedError, ValueError) as error:
            what = step.what if isinstance(step, Errand) else "a step of a chain"
            self.ledger.refuse(self.place, what, error, before)

    async def _chain(self, chain: Chain) -> None:
        home = self.homes[chain.stream]
        made: list[Submission] = []
        with self.round.sim.hold(home.stream) if chain.held else contextlib.nullcontext():
            for act in chain.acts:
                if act.fault is not None:
                    self.round.injector.inject(act.fault, home.stream, KINDS[act.what])
                submission = self._handover(home, act) if act.what == "handover" else home.act(act)
                if submission is not None:
                    made.append(submission)
                    if act.cancel is not None:
                        await abandon(self, submission, act.cancel)
        if made:
            await ENDINGS[chain.ending](self, home, made)

    def _handover(self, home: Home, act: Act) -> Submission | None:
        """A copy to a buffer of the lane's other stream, fenced by events on both sides."""
        other = self.homes[1] if home is self.homes[0] else self.homes[0]
        wait = other.wait_for(home, again=act.tag % 3 == 0)
        if wait is None:
            return None
        size = TAGS + act.tag
        target, source = other.buffers[act.other][:size], home.buffers[act.slot][:size]
        copy = other.submit("memcpy_d2d", size, lambda: other.stream.memcpy(target, source))
        if copy is None:
            return wait
        back = home.wait_for(other, again=act.tag % 5 == 0)
        if back is None:  # nothing keeps this stream from writing to the source meanwhile
            other.contents[act.other] = None
            home.renew(act.slot)
        else:
            other.contents[act.other] = copied(home.contents[act.slot], copy, (wait, back))
        return copy
