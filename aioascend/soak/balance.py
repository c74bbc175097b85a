# SPDX-License-Identifier: Apache-2.0
"""What is left over when everything has been closed, and how much memory the process takes."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import statistics
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from aioascend import _native
from aioascend.testing import LIVE_OBJECTS, Simulator

__all__ = ["ENOUGH_ROUNDS", "Balance", "Growth", "descriptors", "resident_bytes", "steady_malloc"]

RSS_TOLERANCE = 0.02
ENOUGH_ROUNDS = 12
"""In fewer rounds the memory has no second half to speak of."""

_M_ARENA_MAX, _M_MMAP_THRESHOLD = -8, -3  # of malloc.h
_libc = ctypes.CDLL(None)

# Threads of pools, which stay for the next time: of aioascend, anyio, trio, and those of the simulator that compute.
POOLS = ("aioascend_", "AnyIO worker", "Trio thread", "aclsim-")


class Balance:
    """What is left when everything has been closed.

    Objects of the simulator and operations are compared with what there was when this object was made; descriptors and
    threads with what there was after the first round, since what is kept for the next time comes with that.
    """

    def __init__(self, sim: Simulator) -> None:
        self._sim = sim
        self._before = self._objects()
        self._kept: Counter[str] | None = None

    def left(self) -> list[str]:
        """What differs, in sentences. Garbage is collected first."""
        collect_garbage()
        _native.forget_closed_loops()
        kept = Counter({"file descriptors": descriptors()}) + _threads()
        if self._kept is None:
            self._kept = kept
        before, now = self._before + self._kept, self._objects() + kept
        return [
            f"there are {now[name]} {name}, and were {before[name]}"
            for name in sorted({*before, *now})
            if before[name] != now[name]
        ]

    def _objects(self) -> Counter[str]:
        counts = Counter({f"{what} in the simulator": self._sim.live(what) for what in LIVE_OBJECTS})
        counts["operations in flight"] = _native.ticket_counts()["live"]
        return counts


def collect_garbage() -> None:
    """All of it: what goes in one pass may leave cycles that only the next one finds."""
    while gc.collect():
        pass


def descriptors() -> int:
    """Open file descriptors."""
    return len(os.listdir("/proc/self/fd")) - 1  # the one that lists them


def _threads() -> Counter[str]:
    """By name: those of Python, and those that are not, whose names only the system knows."""
    threads = {thread.native_id: thread.name for thread in threading.enumerate()}
    for task in Path("/proc/self/task").iterdir():
        if int(task.name) not in threads:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                threads[int(task.name)] = (task / "comm").read_text().strip()
    unnamed = Path("/proc/self/comm").read_text().strip()  # about to get a name, or to end
    return Counter(f"threads {name!r}" for name in threads.values() if name != unnamed and not name.startswith(POOLS))


def steady_malloc() -> None:
    """Make the memory of the process comparable: threads that come and go would leave holes in arenas of their own."""
    for option, value in ((_M_ARENA_MAX, 1), (_M_MMAP_THRESHOLD, 64 << 10)):
        _libc.mallopt(option, value)


def resident_bytes() -> int:
    """The memory of the process that is in RAM, without garbage and without what malloc keeps for later."""
    collect_garbage()
    _libc.malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Growth:
    """How much more memory the process took towards the end."""

    def __init__(self, samples: Sequence[int]) -> None:
        second = samples[len(samples) // 2 :]
        middle = len(second) // 2
        self.judged = len(samples) >= ENOUGH_ROUNDS
        # Medians: a single sample has the luck of the allocator in it.
        self.share = statistics.median(second[middle:]) / statistics.median(second[:middle]) - 1 if middle else 0.0
        self.flat = not self.judged or self.share <= RSS_TOLERANCE
