# SPDX-License-Identifier: Apache-2.0
"""Which cores the threads run on. What a wake-up costs depends on it more than on anything else.

"two": the event loop has one core, the threads that stand for the device and those that take its reports another; all
others, such as those of pools, may use both. "one": everything shares one core.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["Placement"]

# As the kernel knows them: the simulator's device, the runtime's report thread, that of the floor.
_DEVICE_THREADS = ("aclsim-", "aioascend-rep", "bench-report")


class Placement:
    """One placement, on the first of the cores that the process may use."""

    def __init__(self, name: str) -> None:
        allowed = sorted(os.sched_getaffinity(0))
        self.name = name
        self.loop = {allowed[0]}
        self.device = self.loop if name == "one" else {allowed[1]}
        self.free = self.loop | self.device
        self._allowed = set(allowed)

    def release_thread(self) -> None:
        """Let the calling thread use all cores of the placement: for pools, whose threads inherit the loop's core."""
        os.sched_setaffinity(0, self.free)

    @contextlib.contextmanager
    def pinned(self, device_threads: Iterable[int] = ()) -> Iterator[None]:
        """Pins every thread there is to its core; at the end all may use all cores again.

        Args:
            device_threads: Native ids of further threads that take reports.
        """
        try:
            self._pin(set(device_threads))
            yield
        finally:
            for thread in _threads():
                _set(thread, self._allowed)

    def _pin(self, device_threads: set[int]) -> None:
        main = os.getpid()
        for thread in _threads():
            if thread == main:
                _set(thread, self.loop)
            elif thread in device_threads or _name(thread).startswith(_DEVICE_THREADS):
                _set(thread, self.device)
            else:
                _set(thread, self.free)


def _threads() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/task")]


def _name(thread: int) -> str:
    try:
        return Path(f"/proc/self/task/{thread}/comm").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended
        return ""


def _set(thread: int, cores: set[int]) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended
        os.sched_setaffinity(thread, cores)
