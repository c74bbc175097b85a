# SPDX-License-Identifier: Apache-2.0
"""pyACL as its samples use it: a thread in process_report runs a Python callback, which sets a future."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from typing import Any

from aioascend.bench.contenders.base import AclContender
from aioascend.bench.rig import ACL_NO_BLOCK

__all__ = ["PyAcl"]

_REPORT_WAIT_MS = 100


def _ignore_late_results(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # Of awaits that Ctrl-C has cancelled. Asking each future whether it is done would make everything slower.
    if not isinstance(context.get("exception"), asyncio.InvalidStateError):
        loop.default_exception_handler(context)


class PyAcl(AclContender):
    name = "pyacl"

    async def open(self) -> None:
        await super().open()
        self._callbacks = 0
        self._stop = False
        self._subscribed = threading.Event()
        self._thread = threading.Thread(target=self._serve_reports, name="pyacl-report", daemon=True)
        self._thread.start()
        for stream in self.rig.streams:
            self.rt.subscribe_report(self._thread.ident, stream)
        self._subscribed.set()
        if self.under_trio:
            import trio

            self._new_event = trio.Event
            self._run_soon = trio.lowlevel.current_trio_token().run_sync_soon
        else:
            self._loop = asyncio.get_running_loop()
            self._loop.set_exception_handler(_ignore_late_results)

    def _serve_reports(self) -> None:
        self.rt.set_context(self.rig.context)
        self._subscribed.wait()
        while not self._stop:
            self.rt.process_report(_REPORT_WAIT_MS)

    async def close(self) -> None:
        self._stop = True
        for stream in self.rig.streams:
            self.rt.unsubscribe_report(self._thread.ident, stream)
        self._thread.join()
        await super().close()

    def waited_for(self, lane: Any) -> Awaitable[None]:
        self._callbacks += 1
        if self.under_trio:
            event = self._new_event()
            self.rt.launch_callback(self._set_event, event, ACL_NO_BLOCK, lane.stream)
            return event.wait()
        future = self._loop.create_future()
        self.rt.launch_callback(self._set_future, future, ACL_NO_BLOCK, lane.stream)
        return future

    # On the report thread, in process_report.

    def _set_future(self, future: asyncio.Future[None]) -> None:
        self._loop.call_soon_threadsafe(future.set_result, None)

    def _set_event(self, event: Any) -> None:
        self._run_soon(event.set)

    def device_threads(self) -> list[int]:
        return [self._thread.native_id or 0]

    def counters(self) -> dict[str, float]:
        return {"callbacks": self._callbacks}
