# SPDX-License-Identifier: Apache-2.0
"""The simulator's control functions (aclsim.h) through ctypes; their codes become exceptions."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

import numpy as np

from aioascend.errors import BackendError, error_from_code, newest_message
from aioascend.testing._timeline import TaskRecord

__all__ = ["Control", "text"]


class Record(ctypes.Structure):
    """`aclsimRecord`."""

    _fields_ = (
        ("task_id", c_uint32),
        ("stream_id", c_int32),
        ("device", c_int32),
        ("code", c_int32),
        ("kind", c_char_p),
        ("name", c_char_p),
        ("unit", c_char_p),
        ("unit_index", c_int32),
        ("reserved", c_int32),
        ("queued_ns", c_uint64),
        ("start_ns", c_uint64),
        ("end_ns", c_uint64),
        ("bytes", c_uint64),
    )


# Arguments of the functions that return 0 or an error code.
_COMMANDS: dict[str, tuple[Any, ...]] = {
    "aclsimReset": (),
    "aclsimSetDeviceCount": (c_int32,),
    "aclsimSetProfile": (c_int32, c_char_p),
    "aclsimSetProfileDirectory": (c_char_p,),
    "aclsimSetClock": (c_int,),
    "aclsimHoldStream": (c_void_p,),
    "aclsimReleaseStream": (c_void_p,),
    "aclsimHoldDevice": (c_int32,),
    "aclsimReleaseDevice": (c_int32,),
    "aclsimStep": (c_void_p, c_uint64),
    "aclsimWaitTasks": (c_void_p, c_uint64, c_int32),
    "aclsimWaitBlocked": (c_void_p, c_uint32, c_int32),
    "aclsimFailTask": (c_int32, c_void_p, c_char_p, c_uint64, c_int32),
    "aclsimDropCallback": (c_int32, c_void_p, c_uint64),
    "aclsimDelayReport": (c_int32, c_uint64),
    "aclsimHoldReports": (c_int32,),
    "aclsimReleaseReports": (c_int32,),
    "aclsimSetReportOrder": (c_int,),
    "aclsimLoseDevice": (c_int32, c_int32),
    "aclsimRestoreDevice": (c_int32,),
    "aclsimFailCall": (c_char_p, c_uint64, c_int32, c_uint64),
    "aclsimSetCallLatency": (c_char_p, c_uint64),
    "aclsimSetExceptionDelivery": (c_int,),
    "aclsimSetExceptionStream": (c_int,),
    "aclsimLimitMemory": (c_int32, c_uint64),
    "aclsimSetQueueDepth": (c_uint32,),
    "aclsimLimitStreams": (c_int32, c_uint32),
    "aclsimLimitEvents": (c_int32, c_uint32),
    "aclsimSetPageableMode": (c_int,),
    "aclsimSetStrict": (c_int,),
    "aclsimSetPoisonFree": (c_int,),
    "aclsimTimeline": (POINTER(Record), c_size_t, POINTER(c_size_t)),
    "aclsimClearTimeline": (),
    "aclsimSetTimelineCapacity": (c_size_t,),
}

# Result and arguments of the functions that return a value.
_QUERIES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "aclsimVersion": (c_char_p, ()),
    "aclsimNow": (c_uint64, ()),
    "aclsimCalls": (c_uint64, (c_char_p,)),
    "aclsimCallsOnThread": (c_uint64, (c_char_p, c_uint64)),
    "aclsimCallbacksLaunched": (c_uint64, ()),
    "aclsimLive": (c_int64, (c_char_p,)),
}


class Control:
    """The control functions of one simulator library. The GIL is released while one runs."""

    def __init__(self, path: str) -> None:
        # The runtime has loaded this file already, and a file is loaded once: this is the same simulator.
        self._library = ctypes.CDLL(path)
        missing = [name for name in (*_COMMANDS, *_QUERIES) if not self.exports(name)]
        if missing:
            raise BackendError(
                f"the simulator {path} lacks {', '.join(missing)}, so it is of another release than this "
                "package; unset AIOASCEND_LIBRARY to use the one that belongs to it"
            )
        for name, arguments in _COMMANDS.items():
            function = getattr(self._library, name)
            function.restype, function.argtypes = c_int, arguments
        for name, (result, arguments) in _QUERIES.items():
            function = getattr(self._library, name)
            function.restype, function.argtypes = result, arguments
        self._message = self._library.aclGetRecentErrMsg
        self._message.restype, self._message.argtypes = c_char_p, ()

    def exports(self, function: str) -> bool:
        """Whether the library has a function of this name."""
        try:
            getattr(self._library, function)
        except AttributeError:
            return False
        return True

    def command(self, name: str, *arguments: Any) -> None:
        """Call a function that returns a code; anything but 0 raises the `AclError` of that code."""
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            # The library keeps the message for the thread that made the call: this one.
            raise error_from_code(code, name, newest_message(text(self._message())))

    def query(self, name: str, *arguments: Any) -> Any:
        """Call a function that returns a value."""
        return getattr(self._library, name)(*arguments)

    def timeline(self, *, failed: bool) -> list[TaskRecord]:
        """What aclsimTimeline has now; failed: only tasks with a code."""
        count = c_size_t()
        self.command("aclsimTimeline", None, 0, ctypes.byref(count))
        while True:
            room = count.value + 256  # tasks may finish between the two calls
            records = (Record * room)()
            self.command("aclsimTimeline", records, room, ctypes.byref(count))
            if count.value < room:
                raw = np.frombuffer(memoryview(records).cast("B"), np.uint8).reshape(-1, ctypes.sizeof(Record))
                at = Record.code.offset
                codes = raw[: count.value, at : at + Record.code.size].copy().view(np.int32)
                chosen: Sequence[int] = np.flatnonzero(codes).tolist() if failed else range(count.value)
                return [_task_record(records[i]) for i in chosen]


def _task_record(record: Any) -> TaskRecord:
    return TaskRecord(
        task_id=record.task_id,
        stream_id=record.stream_id,
        device=record.device,
        kind=text(record.kind),
        name=text(record.name),
        unit=text(record.unit),
        unit_index=record.unit_index,
        queued_ns=record.queued_ns,
        start_ns=record.start_ns,
        end_ns=record.end_ns,
        nbytes=record.bytes,
        code=record.code,
    )


def text(value: bytes | None) -> str:
    """A C string."""
    return (value or b"").decode(errors="replace")
