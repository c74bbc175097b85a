# SPDX-License-Identifier: Apache-2.0
"""What is going to be done: made up from the seed before it begins, whatever comes of it."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import NamedTuple

from aioascend.soak.contents import TAGS
from aioascend.soak.faults import FAULTS, Fault

__all__ = ["Act", "Chain", "Errand", "Rates", "RoundPlan", "plan_round"]

SLOTS = 4

HANDOVER = 5  # operations

# What a chain is made of, and how often.
ACTS = {"write": 20, "pinned write": 8, "fill": 14, "copy": 12, "run": 6, "read": 24, "pinned read": 4, "handover": 3}
RARE_ACTS = ("large write", "large read", "fresh buffer")
RARE_ACT_RATE = 0.02

# How a chain ends: what is awaited, by whom.
ENDINGS = {"last": 30, "each": 16, "gather": 16, "event": 10, "stream": 8, "twice": 4, "callback": 6, "nobody": 10}

# How an operation is abandoned.
CANCELS = {"operation": 3, "task": 4, "deadline": 3, "deadline passed": 2}

# What is done beside chains, and how often one comes in place of a chain.
ERRANDS = {"new stream": 4, "new model": 3, "call model": 8, "no memory": 1, "stream given up": 2, "abort": 3}
ERRANDS_WITHOUT_FAULTS = {what: weight for what, weight in ERRANDS.items() if what not in ("no memory", "abort")}
ERRAND_RATE = 0.03

BURST_RATE = 0.01
BURST = 100  # operations behind a hold: more than the device takes, so that the rest waits on the host
LOSS_RATE = 0.05  # rounds in which the device is lost
RESETS = (0, 1, 2)  # how often it is reset then

PROFILES = ("instant", "brisk", "busy")
FLIGHT_LIMITS = (16, 64, 512)


class Act(NamedTuple):
    """One operation on a slot of the lane's buffers, or a handover, which is several."""

    what: str
    slot: int
    other: int
    tag: int
    fault: Fault | None
    cancel: str | None


class Chain(NamedTuple):
    """Acts on one of the lane's two streams, submitted in one go, and who waits for them."""

    stream: int
    acts: tuple[Act, ...]
    ending: str
    held: bool  # while it is submitted


class Errand(NamedTuple):
    """Something else than a chain."""

    what: str
    stream: int
    tag: int
    fault: Fault | None
    cancelled: bool


@dataclass(frozen=True)
class Rates:
    """How much of what.

    Attributes:
        faults: Faults for each operation.
        cancellations: The share of operations that are abandoned.
        streams: Streams that live as long as the round; there is a lane for each.
    """

    faults: float
    cancellations: float
    streams: int


@dataclass(frozen=True)
class RoundPlan:
    """What each lane does in a round; the last two run in a thread of their own."""

    number: int
    operations: int
    lanes: tuple[tuple[Chain | Errand, ...], ...]
    profile: str
    flight_limit: int
    lazy: bool
    shuffled: bool
    loss: tuple[int, int] | None
    """Before which step of which lane the device is lost."""
    resets: int
    """How often the device is reset then, at once; the lanes go on if it is."""
    digest: str


THREAD_LANES = 2


def plan_round(seed: int, number: int, operations: int, rates: Rates) -> RoundPlan:
    """The plan of a round. Equal arguments give equal plans."""
    dice = _dice(f"{seed}/{number}")
    count = rates.streams + THREAD_LANES
    lanes = []
    for index in range(count):
        share = operations * (index + 1) // count - operations * index // count
        lanes.append(_Lane(_dice(f"{seed}/{number}/{index}"), index, count, rates).steps(share))
    loss = None
    if number and dice.random() < LOSS_RATE and rates.faults:
        lane = dice.randrange(rates.streams)
        loss = (lane, dice.randrange(len(lanes[lane]) // 2, len(lanes[lane]) + 1))
    resets = dice.choice(RESETS) if loss else 0
    fixed = (dice.choice(PROFILES), dice.choice(FLIGHT_LIMITS), dice.random() < 0.5, dice.random() < 0.5)
    digest = hashlib.sha256(repr((lanes, fixed, loss, resets)).encode()).hexdigest()
    return RoundPlan(number, operations, tuple(lanes), *fixed, loss, resets, digest)


def _dice(seed: str) -> random.Random:
    return random.Random(seed)  # noqa: S311 - to be repeated, not to be secret


class _Lane:
    """Makes up the steps of one lane."""

    def __init__(self, dice: random.Random, index: int, lanes: int, rates: Rates) -> None:
        self.dice = dice
        self.tag = index  # those of different lanes differ, for a while
        self.lanes = lanes
        self.rates = rates
        self.left = 0

    def steps(self, operations: int) -> tuple[Chain | Errand, ...]:
        self.left = operations
        made: list[Chain | Errand] = []
        while self.left > 0:
            made.append(self._errand() if self.dice.random() < ERRAND_RATE else self._chain())
        return tuple(made)

    def _errand(self) -> Errand:
        self.left -= 1
        fault = self._pick_fault() if self.dice.random() < self.rates.faults else None
        cancelled = self.dice.random() < self.rates.cancellations
        what = self._pick(ERRANDS if self.rates.faults else ERRANDS_WITHOUT_FAULTS)
        return Errand(what, self.dice.randrange(2), self._next_tag(), fault, cancelled)

    def _chain(self) -> Chain:
        dice = self.dice
        if self.left > BURST and dice.random() < BURST_RATE:
            return Chain(dice.randrange(2), tuple(self._act() for _ in range(BURST)), self._pick(ENDINGS), True)
        acts: list[Act] = []
        length = dice.randint(1, 9)
        while len(acts) < length and self.left > 0:
            acts.append(self._act())
        return Chain(0 if dice.random() < 0.7 else 1, tuple(acts), self._pick(ENDINGS), False)

    def _act(self) -> Act:
        dice = self.dice
        what = dice.choice(RARE_ACTS) if dice.random() < RARE_ACT_RATE else self._pick(ACTS)
        operations = HANDOVER if what == "handover" else 1
        self.left -= operations
        fault = self._pick_fault() if dice.random() < operations * self.rates.faults else None
        cancel = self._pick(CANCELS) if dice.random() < operations * self.rates.cancellations else None
        return Act(what, dice.randrange(SLOTS), dice.randrange(SLOTS), self._next_tag(), fault, cancel)

    def _pick_fault(self) -> Fault:
        name = self._pick({name: fault.weight for name, fault in FAULTS.items()})
        return Fault(name, self.dice.randint(1, 3), self.dice.choice(FAULTS[name].codes))

    def _pick(self, weights: dict[str, int]) -> str:
        return self.dice.choices(tuple(weights), tuple(weights.values()))[0]

    def _next_tag(self) -> int:
        self.tag = (self.tag + self.lanes) % TAGS
        return self.tag
