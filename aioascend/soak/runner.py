# SPDX-License-Identifier: Apache-2.0
"""Round after round, until the time or the operations are through, or something is wrong."""

from __future__ import annotations

import hashlib
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio.lowlevel

from aioascend import _native
from aioascend.soak.audit import audit
from aioascend.soak.balance import Balance, Growth, descriptors, resident_bytes, steady_malloc
from aioascend.soak.plan import Rates, plan_round
from aioascend.soak.rounds import Round, run_on
from aioascend.soak.watchdog import Watchdog
from aioascend.testing import Simulator, simulator

__all__ = ["Problem", "Result", "Settings", "soak"]

ROUND_OPERATIONS = 10_000


@dataclass(frozen=True)
class Settings:
    """What to do.

    Attributes:
        seed: Of the plan.
        loop: "asyncio", "uvloop" or "trio".
        rates: How much of what.
        seconds: No round begins later than that.
        operations: How many in all; None for as many as there is time for.
    """

    seed: int
    loop: str
    rates: Rates
    seconds: float
    operations: int | None


@dataclass(frozen=True)
class Problem:
    """What was wrong, and in which round."""

    round: int
    sentences: tuple[str, ...]


@dataclass
class Result:
    """What came of it.

    Attributes:
        plan: A digest of what was planned; equal for equal plans.
        ends: What became of the operations, by class of the error.
        awaits: What the awaits ended with.
        handler_calls: Failures that were told to an exception handler, as nobody awaited them.
        loss_seconds: How long it took at most, after the device was lost, until everybody knew.
        resident: Bytes in RAM after each round.
    """

    operations: int = 0
    rounds: int = 0
    seconds: float = 0.0
    plan: str = ""
    ends: Counter[str] = field(default_factory=Counter)
    awaits: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    cancellations: Counter[str] = field(default_factory=Counter)
    handler_calls: int = 0
    loss_seconds: float = 0.0
    descriptors: int = 0
    resident: list[int] = field(default_factory=list)
    problem: Problem | None = None

    @property
    def growth(self) -> Growth:
        """Of the memory, over the second half."""
        return Growth(self.resident)


def soak(settings: Settings, progress: Callable[[Result], None]) -> Result:
    """Run, on a new event loop; `progress` is called after each round.

    Raises:
        AioascendError: the library in use is not the simulator.
    """
    sim = simulator("sim")
    steady_malloc()
    with Watchdog(settings.seed) as watchdog:
        return run_on(settings.loop, lambda: _soak(settings, sim, watchdog, progress))


async def _soak(settings: Settings, sim: Simulator, watchdog: Watchdog, progress: Callable[[Result], None]) -> Result:
    result = Result()
    digest = hashlib.sha256()
    began = time.monotonic()
    balance = Balance(sim)
    while result.problem is None and time.monotonic() - began < settings.seconds:
        left = ROUND_OPERATIONS if settings.operations is None else settings.operations - result.operations
        if left <= 0:
            break
        plan = plan_round(settings.seed, result.rounds, min(left, ROUND_OPERATIONS), settings.rates)
        digest.update(plan.digest.encode())
        round_ = Round(settings.loop, plan, sim)
        watchdog.watch(round_)
        try:
            await round_.run()
        except Exception:
            round_.ledger.problem(f"the round ended by an exception\n{traceback.format_exc()}")
        _native.forget_closed_loops()  # what was submitted in the thread, and finished when its loop was gone
        failed = sim.timeline(failed=True)
        _add(result, round_, audit(round_.ledger, round_.injector, failed))
        problems = round_.ledger.problems
        sim.reset()
        watchdog.watch(None)
        del round_
        for _ in range(3):
            await anyio.lowlevel.checkpoint()  # what the loop has still to call may hold something
        problems += balance.left()
        result.descriptors = descriptors()
        result.resident.append(resident_bytes())
        result.seconds = time.monotonic() - began
        result.plan = digest.hexdigest()
        if problems:
            result.problem = Problem(result.rounds, tuple(problems))
        result.rounds += 1
        progress(result)
    if result.problem is None and not result.growth.flat:
        result.problem = Problem(
            result.rounds - 1, (f"memory has changed by {result.growth.share:+.1%} over the second half",)
        )
    return result


def _add(result: Result, done: Round, ends: Counter[str]) -> None:
    result.ends += ends
    result.faults += done.injector.injected
    result.handler_calls += sum(telling.handler for telling in done.ledger.tellings)
    result.loss_seconds = max(result.loss_seconds, done.loss_seconds)
    for place in done.ledger.places.values():
        result.operations += place.operations
        result.awaits += place.outcomes
        result.cancellations += place.cancelled
