# SPDX-License-Identifier: Apache-2.0
"""pyACL, the `acl` module of CANN; where there is none, a stand-in with the same calls and the same use of the GIL."""

from __future__ import annotations

import contextlib
import importlib
import types
from typing import Any

from aioascend.bench import _rivals
from aioascend.bench.settings import Settings

__all__ = ["Rig", "RigLane", "has_events", "load_acl"]

# pyACL has no constants: every program defines these.
ACL_HOST_TO_DEVICE = 1
ACL_DEVICE_TO_HOST = 2
ACL_NO_BLOCK = 0
ACL_EVENT_SYNC = 1
_MALLOC_NORMAL_ONLY = 2
_REPEAT_INITIALIZE = 100002
_FAST_LAUNCH_AND_SYNC = 0x1 | 0x2  # as aioascend's own streams


def load_acl(settings: Settings) -> tuple[Any, str]:
    """The module, and what it is: "acl" or "stand-in"."""
    _rivals.use(settings.backend.library.path)
    if settings.backend.kind == "cann":
        with contextlib.suppress(ImportError):
            return importlib.import_module("acl"), "acl"
    return types.SimpleNamespace(init=_rivals.init, rt=_rivals), "stand-in"


def checked(what: str, code: int) -> None:
    """Raises for an ACL code that is a failure; pyACL only returns it."""
    if code != 0:
        raise RuntimeError(f"acl.{what} failed with {code}")


class RigLane:
    """Where one of the concurrent operations works: a stream, device memory, pinned memory to and fro, an event."""

    __slots__ = ("device", "event", "result", "source", "stream")

    def __init__(self, stream: int, device: int, source: int, result: int, event: int) -> None:
        self.stream = stream
        self.device = device
        self.source = source
        self.result = result
        self.event = event


class Rig:
    """A device with streams and memory, as a pyACL program sets it up. Everything is a number."""

    def __init__(self, acl: Any, streams: int, lanes: int, *, events: bool = False) -> None:
        self.acl = acl
        code = acl.init()
        if code != _REPEAT_INITIALIZE:
            checked("init", code)
        checked("rt.set_device", acl.rt.set_device(0))
        self.context, code = acl.rt.get_context()
        checked("rt.get_context", code)
        self.streams = [self._make("create_stream_with_config", 0, _FAST_LAUNCH_AND_SYNC) for _ in range(streams)]
        self._device = self._make("malloc", lanes * _rivals.LANE_BYTES, _MALLOC_NORMAL_ONLY)
        self._host = self._make("malloc_host", 2 * lanes * _rivals.LANE_BYTES)
        self._events: list[int] = []
        self.make_events(lanes if events else 0)
        self.lanes = [
            RigLane(
                self.streams[i % streams],
                self._device + i * _rivals.LANE_BYTES,
                self._host + 2 * i * _rivals.LANE_BYTES,
                self._host + (2 * i + 1) * _rivals.LANE_BYTES,
                self._events[i] if events else 0,
            )
            for i in range(lanes)
        ]

    def make_events(self, count: int) -> None:
        """So many more."""
        for _ in range(count):
            self._events.append(self._make("create_event_with_flag", ACL_EVENT_SYNC))

    def _make(self, function: str, *arguments: int) -> int:
        handle, code = getattr(self.acl.rt, function)(*arguments)
        checked(f"rt.{function}", code)
        return int(handle)

    def close(self) -> None:
        """Gives everything back. All work has been waited for."""
        rt = self.acl.rt
        for event in self._events:
            checked("rt.destroy_event", rt.destroy_event(event))
        for stream in self.streams:
            checked("rt.destroy_stream", rt.destroy_stream(stream))
        checked("rt.free", rt.free(self._device))
        checked("rt.free_host", rt.free_host(self._host))
        checked("rt.reset_device", rt.reset_device(0))


def has_events(settings: Settings, count: int) -> bool:
    """Whether a program can have so many events at once; some devices have 1023."""
    rig = Rig(load_acl(settings)[0], 1, 1)
    try:
        rig.make_events(count)
    except RuntimeError:
        return False
    finally:
        rig.close()
    return True
