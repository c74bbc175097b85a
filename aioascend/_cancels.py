# SPDX-License-Identifier: Apache-2.0
"""Cancels that come up in a task: its own, or those of something that it awaits and somebody else has cancelled."""

from __future__ import annotations

import asyncio
import math

import anyio

from aioascend.errors import AioascendError

__all__ = ["is_cancelled", "stray"]


def is_cancelled(*, in_doubt: bool = True) -> bool:
    """Whether a cancel that has come up is meant for this task: that of a scope, or the `cancel` of an asyncio task.

    in_doubt: What to say before Python 3.11, where the latter cannot be told from that of something that it awaits.
    """
    if anyio.current_effective_deadline() == -math.inf:
        return True
    if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
        return False
    cancelling = getattr(asyncio.current_task(), "cancelling", None)
    return in_doubt if cancelling is None else cancelling() > 0


def stray(what: str, cause: BaseException) -> AioascendError:
    """The error of what was awaited in place of a cancel that is none of whoever is to be told."""
    error = AioascendError(f"{what} has ended by {cause!r}, although nobody has cancelled it")
    error.__cause__ = cause
    return error
