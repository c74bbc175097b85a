# SPDX-License-Identifier: Apache-2.0
"""The threads of debug mode: none keeps the process from ending, and none runs while the interpreter goes away."""

from __future__ import annotations

import atexit
import threading
import weakref

_running: weakref.WeakSet[Watcher] = weakref.WeakSet()


class Watcher(threading.Thread):
    """A thread that looks around until `ending` is set."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.ending = threading.Event()
        _running.add(self)


@atexit.register
def _end_all() -> None:
    watchers = list(_running)
    for watcher in watchers:
        watcher.ending.set()
    for watcher in watchers:
        if watcher.is_alive():
            watcher.join(timeout=5)  # it may be inside a handler that the user has given to the logger
