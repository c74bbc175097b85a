# SPDX-License-Identifier: Apache-2.0
"""The simulator's controls in plain words."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Literal

from aioascend._backend import load_backend
from aioascend.errors import BackendError
from aioascend.testing._arguments import (
    LIVE_OBJECTS,
    TASK_KINDS,
    DeviceLike,
    StreamLike,
    choice,
    count_of,
    failure,
    handle_of,
    index_of,
    is_stream,
    limit,
    milliseconds,
    nanoseconds,
)
from aioascend.testing._control import Control, text
from aioascend.testing._timeline import TaskRecord

__all__ = ["Simulator", "Undo", "simulator"]


class Undo:
    """A switch of the simulator that is on already; as a context manager, it is switched off at the end."""

    def __init__(self, undo: Callable[[], None]) -> None:
        self._undo = undo

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._undo()


def simulator(backend: Literal["auto", "sim"] | None = None) -> Simulator:
    """The controls of the simulator that this process uses, the same each time. Blocks on first use.

    Args:
        backend: As for `aioascend.open_device`, so that both speak of the same library.

    Raises:
        BackendError: the library is not the simulator, or none could be loaded.
    """
    loaded = load_backend(backend)
    path = loaded.library.path
    if loaded.kind != "sim":
        raise BackendError(
            f"aioascend.testing controls the simulator, but the library in use is {path}, which drives real "
            "devices; set AIOASCEND_BACKEND=sim before the first device is opened"
        )
    with _lock:
        if path not in _simulators:
            _simulators[path] = Simulator(path)
        return _simulators[path]


class Simulator:
    """Controls of the simulator. Get it from `simulator`.

    The methods take effect at once, for the whole process, and may be called from any thread; they release
    the GIL. None needs an open device, unless it takes a stream. Where no device is given, all are meant.
    Times are seconds, except on the simulated clock and the timeline, which count whole nanoseconds.

    A number that is out of range is a `ValueError`; what only the simulator can tell to be wrong, an unknown
    device or profile or a stream that is closed, is an `ArgumentError`. The message says what would do.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        """File of the simulator's library."""
        self._control = Control(path)

    @property
    def version(self) -> str:
        """Version of the simulator, "aioascend-sim x.y" (aclsimVersion)."""
        return text(self._control.query("aclsimVersion"))

    def reset(self) -> None:
        """Everything back to the defaults; a good thing to do before or after each test (aclsimReset).

        The clock is real, profile and number of devices are those of the environment, faults, holds, delays
        and limits are gone, timeline and counters are cleared. Devices, streams and their queues stay.
        """
        self._control.command("aclsimReset")

    # --- devices and their speed ---

    def set_device_count(self, count: int) -> None:
        """How many devices there are, 1 to 64; AIOASCEND_SIM_DEVICES, else 2, by default."""
        self._control.command("aclsimSetDeviceCount", count_of("count", count, most=2**31 - 1))

    def set_profile(self, name_or_path: str | os.PathLike[str], device: DeviceLike | None = None) -> None:
        """What a device is like: speeds, sizes, limits.

        Args:
            name_or_path: "instant" (nothing takes time), "inference-card", "atlas-a2", or the path of a
                TOML file.
            device: One device; None for all.
        """
        self._control.command("aclsimSetProfile", index_of(device), os.fsencode(name_or_path))

    def set_profile_directory(self, path: str | os.PathLike[str] | None) -> None:
        """Where profile names are looked up; None for the folder that comes with the simulator."""
        self._control.command("aclsimSetProfileDirectory", None if path is None else os.fsencode(path))

    # --- time ---

    def virtual_time(self) -> Undo:
        """Stop waiting for simulated time: when nothing else can run, the clock jumps to the next completion.

        Tasks take the time that the profile says on the simulated clock, and next to none on the real one;
        the same work gives the same times in each run. As a context manager: until the end of the block, then
        `real_time`.
        """
        self._control.command("aclsimSetClock", 1)
        return Undo(self.real_time)

    def real_time(self) -> None:
        """Let simulated time pass as real time does: the default."""
        self._control.command("aclsimSetClock", 0)

    def now(self) -> int:
        """The simulated clock, in nanoseconds; the clock of the timeline."""
        return int(self._control.query("aclsimNow"))

    # --- holding streams and devices ---

    def hold(self, stream: StreamLike | None = None, *, device: DeviceLike | None = None) -> Undo:
        """Let no further task of a stream start, or of a whole device. What runs already ends.

        Holding twice is holding once. As a context manager: until the end of the block, then `release`.

        Raises:
            TypeError: not exactly one of `stream` and `device` is given.
        """
        if not is_stream(stream, device):
            index = index_of(device)
            self._control.command("aclsimHoldDevice", index)
            return Undo(lambda: self._control.command("aclsimReleaseDevice", index))
        handle = handle_of(stream)
        self._control.command("aclsimHoldStream", handle)
        return Undo(lambda: self._control.command("aclsimReleaseStream", handle))

    def release(self, stream: StreamLike | None = None, *, device: DeviceLike | None = None) -> None:
        """End a hold. A stream goes on when neither it nor its device is held.

        Raises:
            TypeError: not exactly one of `stream` and `device` is given.
        """
        if is_stream(stream, device):
            self._control.command("aclsimReleaseStream", handle_of(stream))
        else:
            self._control.command("aclsimReleaseDevice", index_of(device))

    def step(self, stream: StreamLike, tasks: int = 1) -> None:
        """Let this many more tasks of a held stream start. The reports that awaits ask for are tasks too."""
        self._control.command("aclsimStep", handle_of(stream), count_of("tasks", tasks))

    def wait_tasks(self, stream: StreamLike, total: int, timeout: float | None = 60.0) -> None:
        """Block until `total` tasks of the stream have finished since it was created.

        In a coroutine, call it in a worker thread unless nothing else on the loop is needed for it.

        Args:
            timeout: Seconds of real time; None waits without limit.

        Raises:
            AclTimeoutError: they have not finished in time; the code is 507046.
        """
        total = count_of("total", total, least=0)
        self._control.command("aclsimWaitTasks", handle_of(stream), total, milliseconds(timeout))

    def wait_blocked(self, stream: StreamLike, threads: int = 1, timeout: float | None = 60.0) -> None:
        """Block until this many threads wait in the stream: in a synchronize, or a launch on a full queue.

        Raises:
            AclTimeoutError: they do not in time; the code is 507046.
        """
        threads = count_of("threads", threads, least=0, most=2**32 - 1)
        self._control.command("aclsimWaitBlocked", handle_of(stream), threads, milliseconds(timeout))

    # --- faults ---

    def fail_task(
        self,
        nth: int = 1,
        code: int = 507015,
        *,
        device: DeviceLike | None = None,
        stream: StreamLike | None = None,
        kind: str | None = None,
    ) -> None:
        """Make a task fail on the device: the nth matching one that starts from now on. Its work is not done.

        Args:
            nth: 1 is the next one.
            code: What it fails with, an ACL code; 507015 is an exception of the AI Core.
            device: Where; None for all devices, each of which counts for itself.
            stream: Only tasks of this stream.
            kind: Only tasks of this kind, one of `TASK_KINDS`.

        Raises:
            ValueError: an unknown kind, or a code that is no failure.
        """
        if kind is not None and kind not in TASK_KINDS:
            raise ValueError(f"kind must be one of {', '.join(TASK_KINDS)}, or None for any, not {kind!r}")
        handle = None if stream is None else handle_of(stream)
        name = None if kind is None else kind.encode()
        self._control.command("aclsimFailTask", index_of(device), handle, name, count_of("nth", nth), failure(code))

    def drop_callback(
        self, nth: int = 1, *, device: DeviceLike | None = None, stream: StreamLike | None = None
    ) -> None:
        """Lose the report of the nth matching callback from now on. Its stream goes on.

        Args:
            nth: 1 is the next one.
            device: Where; None for all devices, each of which counts for itself.
            stream: Only callbacks of this stream.
        """
        handle = None if stream is None else handle_of(stream)
        self._control.command("aclsimDropCallback", index_of(device), handle, count_of("nth", nth))

    def delay_report(self, seconds: float, *, device: DeviceLike | None = None) -> None:
        """Let every report posted from now on arrive this much later, in simulated time; 0 for no delay."""
        self._control.command("aclsimDelayReport", index_of(device), nanoseconds(seconds))

    def hold_reports(self, *, device: DeviceLike | None = None) -> Undo:
        """Keep reports from being delivered: the device works on, nobody hears of it.

        As a context manager: until the end of the block, then `release_reports`.
        """
        index = index_of(device)
        self._control.command("aclsimHoldReports", index)
        return Undo(lambda: self.release_reports(device=index))

    def release_reports(self, *, device: DeviceLike | None = None) -> None:
        """Deliver the reports that were held, and those to come."""
        self._control.command("aclsimReleaseReports", index_of(device))

    def shuffle_reports(self, on: bool = True) -> None:
        """Deliver reports of different streams in random order; the order inside a stream is always kept."""
        self._control.command("aclsimSetReportOrder", int(on))

    def lose_device(self, device: DeviceLike | None = None, code: int = 507010) -> None:
        """Take a device away: nothing on it completes any more, reports do not come, calls return `code`."""
        self._control.command("aclsimLoseDevice", index_of(device), failure(code))

    def restore_device(self, device: DeviceLike | None = None) -> None:
        """Bring a lost device back. Its fault stays until it is reset by force (aclrtResetDeviceForce)."""
        self._control.command("aclsimRestoreDevice", index_of(device))

    def fail_call(self, function: str, nth: int = 1, code: int = 507000, times: int = 1) -> None:
        """Make calls of an ACL function fail without doing anything: the nth from now on, and `times` in all.

        Raises:
            ValueError: the library has no such function, or `code` is no failure.
        """
        arguments = (count_of("nth", nth), failure(code), count_of("times", times))
        self._control.command("aclsimFailCall", self._function(function), *arguments)

    def set_call_latency(self, function: str, seconds: float) -> None:
        """Let every call of an ACL function take this much longer, in real time; 0 for no delay.

        Raises:
            ValueError: the library has no such function.
        """
        self._control.command("aclsimSetCallLatency", self._function(function), nanoseconds(seconds))

    def set_exception_delivery(self, when: Literal["eager", "lazy"]) -> None:
        """When exception callbacks run.

        Args:
            when: "eager", before the stream's later tasks, is the default; "lazy": when a thread that
                synchronises, queries or launches comes across the failure, or a monitor 50 ms later.
        """
        self._control.command("aclsimSetExceptionDelivery", choice("when", when, ("eager", "lazy")))

    def set_exception_stream(self, which: Literal["launch", "inner"]) -> None:
        """Which stream the exception of a failed model names.

        Args:
            which: "launch", the one it was launched on, is the default; "inner": one of the library's own, whose
                id no program has seen.
        """
        self._control.command("aclsimSetExceptionStream", choice("which", which, ("launch", "inner")))

    # --- limits and modes ---

    def limit_memory(self, nbytes: int | None, *, device: DeviceLike | None = None) -> None:
        """Memory of a device in bytes; None: what the profile says. Allocating more fails with 207001."""
        self._control.command("aclsimLimitMemory", index_of(device), limit("nbytes", nbytes, 2**64 - 1))

    def set_queue_depth(self, entries: int | None) -> None:
        """Entries of every stream's queue, at least 4; None: 2013. A launch on a full queue blocks."""
        self._control.command("aclsimSetQueueDepth", limit("entries", entries))

    def limit_streams(self, count: int | None, *, device: DeviceLike | None = None) -> None:
        """Streams of a device, default ones included; None: what the profile says. More fail with 207008."""
        self._control.command("aclsimLimitStreams", index_of(device), limit("count", count))

    def limit_events(self, count: int | None, *, device: DeviceLike | None = None) -> None:
        """Event ids of a device; None: what the profile says. More fail with 207007."""
        self._control.command("aclsimLimitEvents", index_of(device), limit("count", count))

    def set_pageable_mode(self, mode: Literal["blocking", "asynchronous"]) -> None:
        """What an asynchronous copy with pageable host memory does.

        Args:
            mode: "blocking", it waits for the stream and copies at once, is the default; "asynchronous": it
                goes on, unchecked, as under old drivers.
        """
        self._control.command("aclsimSetPageableMode", choice("mode", mode, ("blocking", "asynchronous")))

    def strict(self, on: bool = True) -> None:
        """Abort the process, with a message, on ACL calls in callbacks and on freeing memory in use."""
        self._control.command("aclsimSetStrict", int(on))

    def poison_freed(self, on: bool = True) -> None:
        """Fill device memory with 0xDB when it is freed, so that use after free shows. On by default."""
        self._control.command("aclsimSetPoisonFree", int(on))

    # --- counters ---

    def calls(self, function: str) -> int:
        """How often an ACL function was called since the last `reset`.

        Raises:
            ValueError: the library has no such function.
        """
        return int(self._control.query("aclsimCalls", self._function(function)))

    def calls_on_thread(self, function: str, ident: int | None = None) -> int:
        """How often a thread called an ACL function since the last `reset`.

        Args:
            ident: Of a Python thread (`threading.get_ident`), or a pthread_t; None for the calling thread.

        Raises:
            ValueError: the library has no such function.
        """
        thread = threading.get_ident() if ident is None else ident
        return int(self._control.query("aclsimCallsOnThread", self._function(function), thread))

    @property
    def callbacks_launched(self) -> int:
        """Callbacks put into streams since the last `reset` (aclrtLaunchCallback, aclrtLaunchHostFunc)."""
        return int(self._control.query("aclsimCallbacksLaunched"))

    def live(self, what: str) -> int:
        """How many objects there are now, or bytes of memory; `what` is one of `LIVE_OBJECTS`.

        Raises:
            ValueError: an unknown name.
        """
        count = int(self._control.query("aclsimLive", what.encode()))
        if count < 0:
            raise ValueError(f"nothing called {what!r} is counted; there are {', '.join(LIVE_OBJECTS)}")
        return count

    # --- timeline ---

    def timeline(self, *, failed: bool = False) -> list[TaskRecord]:
        """The tasks of all devices that have finished since `clear_timeline`, in order of completion.

        Each device keeps its newest 65536, or what `set_timeline_capacity` says.

        Args:
            failed: Only those that have failed; that is faster when there are many tasks.
        """
        return self._control.timeline(failed=failed)

    def clear_timeline(self) -> None:
        """Forget the tasks that have finished so far."""
        self._control.command("aclsimClearTimeline")

    def set_timeline_capacity(self, records: int) -> None:
        """How many finished tasks each device keeps; 0 for none."""
        self._control.command("aclsimSetTimelineCapacity", count_of("records", records, least=0))

    def _function(self, name: str) -> bytes:
        # A misspelt name would otherwise count as a function that is never called.
        if not name.startswith("acl") or name.startswith("aclsim") or not self._control.exports(name):
            raise ValueError(f"the simulator has no ACL function {name!r}")
        return name.encode()


_lock = threading.Lock()
_simulators: dict[str, Simulator] = {}
