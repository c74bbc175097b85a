# SPDX-License-Identifier: Apache-2.0
"""How long things have been taking, and what follows from that."""

from __future__ import annotations

__all__ = ["Forecast", "Pace"]

# The end of a run lets the next batch leave at once, which costs the device its way to the host and back. To leave
# before that, although it would be there in time, is worse: whoever gets an answer then asks again, and comes along.
_SLACK_S = 0.5e-3


class Pace:
    """What something takes, by the last few times: the mean, and what is hardly exceeded."""

    def __init__(self) -> None:
        self._known = False
        self._mean = 0.0
        self._deviation = 0.0

    def add(self, seconds: float) -> None:
        if not self._known:
            self._known, self._mean = True, seconds
        error = seconds - self._mean
        self._mean += error / 4
        self._deviation += (abs(error) - self._deviation) / 4

    @property
    def mean(self) -> float | None:
        return self._mean if self._known else None

    @property
    def at_least(self) -> float:
        return max(0.0, self._mean - 2 * self._deviation)

    @property
    def at_most(self) -> float:
        return 1.1 * self._mean + 2 * self._deviation


class Forecast:
    """When a target that runs one batch after the other will be able to begin with the next one.

    Batches have their numbers of members in common with earlier ones, so their times are kept by that. What a batch
    takes that has the target for itself, over what it takes behind another, is what is done beside the run: copying.
    """

    def __init__(self) -> None:
        self._under_way: list[tuple[float, int]] = []  # since when, how many members
        self._ended = 0.0
        self._alone: dict[int, Pace] = {}
        self._behind: dict[int, Pace] = {}

    def begin(self, now: float, size: int) -> tuple[float, int]:
        """A batch leaves."""
        batch = (now, size)
        self._under_way.append(batch)
        return batch

    def end(self, now: float, batch: tuple[float, int], *, ok: bool) -> None:
        """It is done."""
        began, size = batch
        if ok:
            paces, since = (self._behind, self._ended) if self._ended > began else (self._alone, began)
            paces.setdefault(size, Pace()).add(now - since)
        self._under_way.remove(batch)
        self._ended = now

    def leave_at(self) -> float:
        """When the next batch has to leave to be there in time; it begins no earlier if it leaves sooner."""
        free = self._ended
        for began, size in self._under_way:
            free = max(free, began) + self._run(size)
        return free + _SLACK_S - max((self._beside(size) for _, size in self._under_way), default=0.0)

    def _run(self, size: int) -> float:
        pace = self._behind.get(size) or self._alone.get(size)
        return pace.at_least if pace else 0.0

    def _beside(self, size: int) -> float:
        alone, behind = (paces[size].mean if size in paces else None for paces in (self._alone, self._behind))
        return 0.0 if alone is None or behind is None else max(0.0, alone - behind)
