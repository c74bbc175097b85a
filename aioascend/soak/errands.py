# SPDX-License-Identifier: Apache-2.0
"""What a lane does beside chains: streams and models that come and go, calls of models, running out of memory."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import anyio
import numpy as np

import aioascend as aa
from aioascend.soak import contents
from aioascend.soak.awaiting import take, wait_for
from aioascend.soak.contents import TAGS
from aioascend.soak.home import Home
from aioascend.soak.ledger import Submission
from aioascend.soak.models import SharedModel, load_model
from aioascend.soak.plan import SLOTS, Act

if TYPE_CHECKING:
    from aioascend.soak.lane import Lane
    from aioascend.soak.plan import Errand

__all__ = ["run_errand"]

NO_MEMORY = 1 << 20
NO_LIMIT = float("inf")
SOON = 0.0003
ABORTED = (0, 1, 6, 100)  # operations that are submitted just before an abort


async def run_errand(lane: Lane, errand: Errand) -> None:
    """Do it; it raises what is refused."""
    lane.place.operations += 1
    lane.round.heartbeat += 1
    await _ERRANDS[errand.what](lane, errand)


async def _new_stream(lane: Lane, errand: Errand) -> None:
    """A stream for two operations; closing it may be cancelled."""
    if errand.fault is not None:
        lane.round.injector.refuse("aclrtCreateStreamWithConfig", errand.fault._replace(code=207008))
    stream = await lane.npu.create_stream()
    try:
        home = Home(lane, stream, lane.ledger.open(stream), lane.homes[0].model, lane.patterns)
        made = [home.act(Act(what, 0, 0, errand.tag, None, None)) for what in ("write", "read")]
        if made[1] is not None and errand.tag % 2:
            await take(lane, made[1])
    finally:
        with anyio.move_on_after(0 if errand.cancelled else NO_LIMIT):
            await stream.close()


async def _stream_given_up(lane: Lane, errand: Errand) -> None:
    """Asking for a stream, and no longer wanting it; or a stream that is just dropped."""
    with anyio.move_on_after(0):
        await lane.npu.create_stream()
    stream = await lane.npu.create_stream()
    lane.ledger.open(stream, tracked=False)
    stream.memset(lane.npu.empty(16, "uint8"), 0)
    del stream


async def _new_model(lane: Lane, errand: Errand) -> None:
    if errand.fault is not None:
        lane.round.injector.refuse("aclmdlLoadFromMem", errand.fault._replace(code=207001))
    model = await load_model(lane.npu, lane.ledger)
    try:
        await _call(lane, model, errand)
    finally:
        with anyio.move_on_after(0 if errand.cancelled else NO_LIMIT):
            await model.model.close()


async def _call_model(lane: Lane, errand: Errand) -> None:
    await _call(lane, lane.homes[errand.stream].model, errand)


async def _call(lane: Lane, shared: SharedModel, errand: Errand) -> None:
    """`await model(x)`: its copies and the run are its own business, the result must be right."""
    model = shared.model
    shared.link(shared.own)
    if errand.fault is not None and errand.fault.name == "task":
        lane.round.injector.inject(errand.fault, model.stream, "execute")
    data = contents.pattern(errand.tag)[:TAGS]
    results: list[tuple[np.ndarray, np.ndarray]] = []
    before = lane.ledger.now(lane.place)

    async def call() -> None:
        try:
            results.append(await model(np.frombuffer(data, np.uint8)))
        except aa.AclError as error:
            if not _was_refused(error):
                raise
            lane.ledger.refuse(lane.place, "a step of a call", error, before)

    with anyio.move_on_after(SOON if errand.cancelled else NO_LIMIT):
        await wait_for(lane, call(), since=before)
    for copy, total in results:
        if copy.tobytes() != data or total.tobytes() != contents.sum_of(data):
            lane.ledger.problem(f"lane {lane.index}: a call of a model gave something else than it must")


def _was_refused(error: aa.AclError) -> bool:
    """Whether a submit raised it; operations have a number."""
    return not isinstance(error, (aa.DependencyError, aa.ReportLostError)) and "#" not in error.where


async def _no_memory(lane: Lane, errand: Errand) -> None:
    """A buffer for which there is no memory fails what uses it; with memory again all is well."""
    sim = lane.round.sim
    lane.round.injector.injected["no memory"] += 1
    lane.ledger.memory_ran_out = True
    sim.limit_memory(NO_MEMORY)
    lane.round.limiting += 1
    refused = False
    try:
        home = lane.homes[errand.stream]
        buffer = lane.npu.empty(64 << 20, "uint8")
        submission = home.submit("memset", buffer.nbytes, lambda: home.stream.memset(buffer, 1))
        if submission is not None:
            await take(lane, submission)
            refused = any(isinstance(outcome, aa.OutOfMemoryError) for outcome in submission.outcomes)
            if submission.outcomes == [None] and not lane.round.limit_undercut:
                lane.ledger.problem(f"lane {lane.index}: memory for 64 MiB came out of {NO_MEMORY} bytes")
    finally:
        lane.round.limiting -= 1
        lane.round.limit_undercut |= lane.round.limiting > 0 or not refused  # first, for others who are about to judge
        sim.limit_memory(None)


async def _abort(lane: Lane, errand: Errand) -> None:
    """What is on a stream is discarded, of whatever lane it is; waiting until that is done may be cancelled."""
    home, ledger = lane.homes[errand.stream], lane.ledger
    lane.round.injector.injected["abort"] += 1
    made: list[Submission] = []
    with lane.round.sim.hold(home.stream) if errand.tag % 3 else contextlib.nullcontext():
        for number in range(ABORTED[errand.tag % len(ABORTED)]):
            act = Act(("write", "read", "copy", "run")[number % 4], number % SLOTS, 0, errand.tag, None, None)
            if (submission := home.act(act)) is not None:
                made.append(submission)
        abort = ledger.abort(home.session)
        with anyio.move_on_after(SOON if errand.cancelled else NO_LIMIT):
            goes_on = await home.stream.abort()
            abort.ended = ledger.now(lane.place)
            if not goes_on and not ledger.lost:
                ledger.problem(f"lane {lane.index}: stream {home.session.id} does not go on after an abort")
    if errand.tag % 2:
        for submission in made:
            await take(lane, submission)


_ERRANDS = {
    "abort": _abort,
    "new stream": _new_stream,
    "stream given up": _stream_given_up,
    "new model": _new_model,
    "call model": _call_model,
    "no memory": _no_memory,
}
