# SPDX-License-Identifier: Apache-2.0
"""Blocking ACL calls, off the event loop, without losing what they made when the waiter is cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import anyio.to_thread

from aioascend import _native

T = TypeVar("T")

# For asyncio: the threads of anyio outlive a loop that an exception has ended, and keep the process from ending.
_pool = ThreadPoolExecutor(32, "aioascend")


async def run_blocking(call: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
    """Run `call` in a worker thread.

    The call cannot be stopped. When the waiter is cancelled, `undo` is given what the call made, in a thread, as soon
    as it is there; without `undo` the call just ends on its own.
    """
    lock = threading.Lock()
    made: list[T] = []
    abandoned = False

    def in_thread() -> T:
        value = call()
        with lock:
            made.append(value)
            left = abandoned
        if left and undo is not None:
            undo(value)
        return value

    try:
        bridge = _native.running_bridge()
        if bridge is not None and bridge.token is None:
            return await asyncio.get_running_loop().run_in_executor(_pool, in_thread)
        return await anyio.to_thread.run_sync(in_thread, abandon_on_cancel=True)
    except BaseException:
        with lock:
            abandoned = True
            late = list(made)
        for value in late:
            if undo is not None:
                threading.Thread(target=undo, args=(value,), name="aioascend-undo", daemon=True).start()
        raise
