# SPDX-License-Identifier: Apache-2.0
"""The ways to wait for operations and to abandon them; each notes what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.lowlevel

from aioascend import AclError
from aioascend._native import Operation
from aioascend.soak.ledger import CANCELLED, NEVER, Outcome, Submission

if TYPE_CHECKING:
    from aioascend.soak.home import Home
    from aioascend.soak.lane import Lane

__all__ = ["ENDINGS", "abandon", "take", "wait_for"]

DEADLINE = 0.0003


async def wait_for(
    lane: Lane, what: Awaitable[object], submission: Submission | None = None, *, since: int = 0
) -> None:
    """Await something and note the outcome, for a submission where it is one's. A cancel passes through.

    Without a submission, all that is awaited was submitted after the tick `since`.
    """
    ledger, place = lane.ledger, lane.place
    place.waiting += 1
    outcome: Outcome = CANCELLED
    begun = place.last
    try:
        await what
        outcome = None
    except AclError as error:
        ledger.tell(error, place.last, ledger.now(place), since=submission.before if submission else since)
        outcome = error
    except BaseException:
        if submission is not None:
            _note_told_unseen(lane, submission, begun)
        raise
    finally:
        place.waiting -= 1
        place.note(outcome)
        if submission is not None:
            _add_outcome(lane, submission, outcome)
        lane.round.heartbeat += 1


def _add_outcome(lane: Lane, submission: Submission, outcome: Outcome) -> None:
    submission.outcomes.append(outcome)
    if outcome is not CANCELLED and submission.known == NEVER:
        submission.known = lane.ledger.now(lane.place)


def _note_told_unseen(lane: Lane, submission: Submission, begun: int) -> None:
    """A cancel came when the operation had failed already: the loop may have asked for the error, and dropped it."""
    operation = submission.made
    if isinstance(operation, Operation) and operation.done() and not operation.cancelled():
        error = operation.exception()
        if isinstance(error, AclError):
            lane.ledger.tell(error, begun, lane.ledger.now(lane.place), since=submission.before)


async def take(lane: Lane, submission: Submission) -> None:
    """Await a submission, which may have been cancelled, and what was submitted before it must be done."""
    made = submission.made
    try:
        await wait_for(lane, made, submission)
    except asyncio.CancelledError:
        if not (isinstance(made, Operation) and made.cancelled()):
            raise
        return
    for home in lane.homes:
        if home.session is submission.session and submission.seq:
            _check_order(lane, home, submission)


def _check_order(lane: Lane, home: Home, submission: Submission) -> None:
    """Operations of a stream are resolved in order; at least those that belong to this loop can be seen to be."""
    unresolved = home.unresolved
    while unresolved and unresolved[0].before <= submission.before:
        earlier = unresolved.popleft()
        if isinstance(earlier.made, Operation) and not earlier.made.done():
            lane.ledger.problem(f"{submission} was resolved before {earlier}, which was submitted earlier")


# --- abandoning ---


async def abandon(lane: Lane, submission: Submission, how: str) -> None:
    """Cancel an operation, or the wait for it."""
    lane.place.cancelled[how] += 1
    submission.abandoned = True
    if how == "operation":
        if isinstance(submission.made, Operation):
            submission.made.cancel("soak")
    elif how == "task":
        await _cancel_task(lane, submission)
    else:
        with anyio.move_on_after(0 if how == "deadline passed" else DEADLINE):
            await take(lane, submission)


async def _cancel_task(lane: Lane, submission: Submission) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(take, lane, submission)
        await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()


# --- how a chain ends ---


async def _last(lane: Lane, home: Home, made: list[Submission]) -> None:
    await take(lane, made[-1])


async def _each(lane: Lane, home: Home, made: list[Submission]) -> None:
    for submission in made:
        await take(lane, submission)


async def _twice(lane: Lane, home: Home, made: list[Submission]) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(take, lane, made[-1])
        group.start_soon(take, lane, made[-1])
    await take(lane, made[-1])


async def _gather(lane: Lane, home: Home, made: list[Submission]) -> None:
    """asyncio.gather of the operations as they are; under trio a task for each."""
    if lane.round.loop == "trio":
        async with anyio.create_task_group() as group:
            for submission in made:
                group.start_soon(take, lane, submission)
        return
    ledger, place = lane.ledger, lane.place
    begun = place.last
    place.waiting += len(made)
    results = await asyncio.gather(*(cast("Operation", submission.made) for submission in made), return_exceptions=True)
    place.waiting -= len(made)
    now = ledger.now(place)
    for submission, result in zip(made, results, strict=True):
        outcome: Any = CANCELLED if isinstance(result, asyncio.CancelledError) else result
        if isinstance(result, AclError):
            ledger.tell(result, begun, now, since=submission.before)
        place.note(outcome)
        _add_outcome(lane, submission, outcome)
    lane.round.heartbeat += 1


async def _event(lane: Lane, home: Home, made: list[Submission]) -> None:
    record = home.submit("event_record", 0, home.stream.record)
    if record is not None:
        await take(lane, record)


async def _stream(lane: Lane, home: Home, made: list[Submission]) -> None:
    await wait_for(lane, home.stream.join())


async def _callback(lane: Lane, home: Home, made: list[Submission]) -> None:
    """A done-callback, which must be called once; under trio, where there are none, a plain await."""
    operation = made[-1].made
    if lane.round.loop == "trio" or not isinstance(operation, Operation):
        await take(lane, made[-1])
        return
    calls = 0
    called = asyncio.Event()

    def done(given: Operation) -> None:
        nonlocal calls
        calls += 1
        called.set()
        if given is not operation or not given.done():
            lane.ledger.problem(f"the done-callback of {made[-1]!r} was called with {given!r}")

    operation.add_done_callback(done)
    await called.wait()
    await take(lane, made[-1])
    await anyio.lowlevel.checkpoint()
    if calls != 1:
        lane.ledger.problem(f"the done-callback of {made[-1]!r} was called {calls} times")


async def _nobody(lane: Lane, home: Home, made: list[Submission]) -> None:
    await anyio.lowlevel.checkpoint()


ENDINGS: dict[str, Callable[[Lane, Home, list[Submission]], Awaitable[None]]] = {
    "last": _last,
    "each": _each,
    "twice": _twice,
    "gather": _gather,
    "event": _event,
    "stream": _stream,
    "callback": _callback,
    "nobody": _nobody,
}
