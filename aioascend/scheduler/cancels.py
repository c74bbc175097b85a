# SPDX-License-Identifier: Apache-2.0
"""Cancels that come up in the tasks of callers."""

from __future__ import annotations

import asyncio

import anyio

from aioascend._cancels import cancelled_by_scope

__all__ = ["is_cancelled"]


def is_cancelled() -> bool:
    """Whether a cancel that has come up is meant for this task, which is the caller's: that of a scope, or the `cancel`
    of an asyncio task. Before Python 3.11 that cannot be told from the cancel of something that the task awaits."""
    if cancelled_by_scope():
        return True
    if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
        return False
    cancelling = getattr(asyncio.current_task(), "cancelling", None)
    return cancelling is None or cancelling() > 0
