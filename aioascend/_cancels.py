# SPDX-License-Identifier: Apache-2.0
"""Cancels that come up in a task: its own, or those of something that it awaits and somebody else has cancelled."""

from __future__ import annotations

import asyncio
import math

import anyio

from aioascend.errors import AioascendError

__all__ = ["cancelled_by_scope", "is_cancelled", "stray"]


def cancelled_by_scope() -> bool:
    """Whether a cancel that has come up is one of a scope, rather than that of something that was awaited."""
    return anyio.current_effective_deadline() == -math.inf


def is_cancelled() -> bool:
    """Whether a cancel that has come up is meant for this task: that of a scope, or the `cancel` of an asyncio task.
    Before Python 3.11 the latter cannot be told from that of something that the task awaits."""
    if anyio.current_effective_deadline() == -math.inf:
        return True
    if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
        return False
    cancelling = getattr(asyncio.current_task(), "cancelling", None)
    return cancelling is None or cancelling() > 0


def stray(what: str, cause: BaseException) -> AioascendError:
    """The error of what was awaited in place of a cancel that is none of whoever is to be told."""
    error = AioascendError(f"{what} has ended by {cause!r}, although nobody has cancelled it")
    error.__cause__ = cause
    return error
