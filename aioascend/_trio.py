# SPDX-License-Identifier: Apache-2.0
"""How trio awaits an operation. Imported only where trio runs."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from aioascend import _native


def current_token() -> object:
    """What identifies the running trio loop."""
    return trio.lowlevel.current_trio_token()


def watch(bridge: _native.LoopBridge) -> None:
    """Starts the task that resolves what finishes for this trio run; it ends with the run."""
    trio.lowlevel.spawn_system_task(_watch, bridge, name="aioascend completions")


async def _watch(bridge: _native.LoopBridge) -> None:
    try:
        while True:
            await trio.lowlevel.wait_readable(bridge.fd)
            bridge.drain()
    finally:
        bridge.close()


@trio.lowlevel.enable_ki_protection  # or Ctrl-C leaves a waiter behind, which wakes a task that does not wait
async def wait(operation: _native.Operation) -> None:
    """Awaits a pending operation. A cancelled scope ends the wait at once and leaves the operation alone."""
    task = trio.lowlevel.current_task()
    token = trio.lowlevel.current_trio_token()
    thread = threading.get_ident()
    waiting = True

    def wake() -> None:
        nonlocal waiting
        if waiting:
            waiting = False
            trio.lowlevel.reschedule(task)

    def resume(_: _native.Operation) -> None:
        if threading.get_ident() == thread:
            wake()
        else:  # it follows an operation that another loop resolves
            with contextlib.suppress(trio.RunFinishedError):
                token.run_sync_soon(wake)

    def abort(_: object) -> trio.lowlevel.Abort:
        nonlocal waiting
        waiting = False
        operation.remove_waiter(resume)
        return trio.lowlevel.Abort.SUCCEEDED

    if operation.add_waiter(resume):
        await trio.lowlevel.wait_task_rescheduled(abort)
    operation.result()
