# SPDX-License-Identifier: Apache-2.0
"""How a benchmark is run: which loops, which placements, how many rounds, on which library."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable

from aioascend._backend import Backend, load_backend
from aioascend.errors import AioascendError
from aioascend.testing import Simulator, simulator

__all__ = ["LOOPS", "PLACEMENTS", "Settings", "UnavailableError"]

LOOPS = ("asyncio", "uvloop", "trio")
PLACEMENTS = ("two", "one")


class UnavailableError(AioascendError):
    """A scenario cannot run here; the message says what it needs."""


def _silent(_: str) -> None:
    pass


@dataclasses.dataclass(frozen=True)
class Settings:
    """What all scenarios are given.

    Attributes:
        quick: Only what the goals need.
        loops: The event loops to measure, of `LOOPS`.
        placements: Where threads run, of `PLACEMENTS`; see `aioascend.bench.placement`.
        rounds: How often everything is measured, interleaved.
        scale: Factor on the numbers of operations; tests use a tiny one.
        progress: Called with a short text before each measurement.
        note: Called with a sentence about what is left out, and why.
    """

    quick: bool = False
    loops: tuple[str, ...] = LOOPS
    placements: tuple[str, ...] = PLACEMENTS
    rounds: int = 5
    scale: float = 1.0
    progress: Callable[[str], None] = _silent
    note: Callable[[str], None] = _silent

    @classmethod
    def for_this_machine(cls, *, quick: bool) -> Settings:
        """The usual ones: with one core there is only placement "one", and quick runs leave out what no goal needs."""
        placements = PLACEMENTS if len(os.sched_getaffinity(0)) > 1 else ("one",)
        if quick:
            return cls(quick=True, loops=LOOPS[:2], placements=placements[:1])
        return cls(placements=placements)

    @property
    def backend(self) -> Backend:
        """The ACL library that is measured."""
        return load_backend()

    @property
    def simulated(self) -> bool:
        """Whether that is the simulator."""
        return self.backend.kind == "sim"

    @property
    def asyncio_loops(self) -> tuple[str, ...]:
        """The loops on which asyncio works."""
        return tuple(loop for loop in self.loops if loop != "trio")

    def count(self, operations: int) -> int:
        """A number of operations, scaled; at least 1."""
        return max(1, round(operations * self.scale))

    def simulator(self, purpose: str) -> Simulator:
        """The simulator's controls.

        Raises:
            UnavailableError: another library is used; the message says what the simulator is needed for.
        """
        if not self.simulated:
            raise UnavailableError(
                f"{purpose} takes the simulator, but the library in use is {self.backend.library.path}; "
                "set AIOASCEND_BACKEND=sim"
            )
        return simulator()
