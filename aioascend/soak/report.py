# SPDX-License-Identifier: Apache-2.0
"""What `aioascend soak` prints and writes."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from aioascend.soak.balance import ENOUGH_ROUNDS
from aioascend.soak.runner import Result, Settings

__all__ = ["Progress", "begin", "show", "to_json"]

MOST = 20  # problems that are printed
EVERY_S = 10.0


def begin(settings: Settings) -> None:
    """The first line: enough to repeat the run."""
    rates = settings.rates
    print(
        f"aioascend soak: seed {settings.seed}, {settings.loop}, {rates.streams} streams, "
        f"faults {rates.faults:g}, cancellations {rates.cancellations:g}",
        flush=True,
    )


class Progress:
    """A line now and then."""

    def __init__(self) -> None:
        self._printed = time.monotonic()

    def __call__(self, result: Result) -> None:
        if time.monotonic() - self._printed > EVERY_S:
            self._printed = time.monotonic()
            print(
                f"  {result.seconds:.0f} s: {result.operations} operations, {result.rounds} rounds, "
                f"{result.resident[-1] / 1e6:.1f} MB",
                flush=True,
            )


def show(result: Result) -> None:
    """The summary, and what was wrong."""
    growth = result.growth
    memory = (
        f"{growth.share:+.1%} over the second half" if growth.judged else f"not judged below {ENOUGH_ROUNDS} rounds"
    )
    rows = [
        ("rounds", str(result.rounds)),
        ("operations", f"{result.operations} in {result.seconds:.0f} s"),
        ("ended", _counts(result.ends)),
        ("awaits", _counts(result.awaits)),
        ("faults", f"{sum(result.faults.values())}: {_counts(result.faults)}"),
        ("cancellations", f"{sum(result.cancellations.values())}: {_counts(result.cancellations)}"),
        ("untold until closed", str(result.handler_calls)),
        ("device lost", f"all ended within {result.loss_seconds:.2f} s" if result.loss_seconds else "never"),
        ("memory", f"{result.resident[-1] / 1e6:.1f} MB, {memory}" if result.resident else "-"),
        ("file descriptors", str(result.descriptors)),
    ]
    for name, value in rows:
        print(f"{name:20} {value}")
    if result.problem is None:
        print("all as it must be")
        return
    sentences = result.problem.sentences
    print(f"round {result.problem.round}: {len(sentences)} things are not as they must be")
    for sentence in sentences[:MOST]:
        print(f"- {sentence}")
    if len(sentences) > MOST:
        print(f"- and {len(sentences) - MOST} more")


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counter.most_common()) or "none"


def to_json(settings: Settings, result: Result) -> dict[str, Any]:
    """The result as JSON."""
    return {
        "seed": settings.seed,
        "loop": settings.loop,
        "streams": settings.rates.streams,
        "rates": {"faults": settings.rates.faults, "cancellations": settings.rates.cancellations},
        "plan": result.plan,
        "rounds": result.rounds,
        "operations": result.operations,
        "seconds": round(result.seconds, 3),
        "ended": dict(result.ends),
        "awaits": dict(result.awaits),
        "faults": dict(result.faults),
        "cancellations": dict(result.cancellations),
        "untold_until_closed": result.handler_calls,
        "loss_seconds": round(result.loss_seconds, 3),
        "file_descriptors": result.descriptors,
        "resident_bytes": result.resident,
        "resident_growth": result.growth.share if result.growth.judged else None,
        "problem": None
        if result.problem is None
        else {"round": result.problem.round, "sentences": list(result.problem.sentences)},
    }
