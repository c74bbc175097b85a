# SPDX-License-Identifier: Apache-2.0
"""Devices: opened once per process, shared by whoever opens them again."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from aioascend import _debug, _native
from aioascend._arguments import seconds, whole
from aioascend._backend import Backend, load_backend
from aioascend._closing import Closing, Opening, coroutine_function
from aioascend._opened import Opened
from aioascend._threads import run_blocking
from aioascend.errors import AioascendError, RuntimeClosedError
from aioascend.health import DeviceHealth, health_of
from aioascend.model import Model, ModelContext
from aioascend.stream import Stream, StreamContext

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from aioascend._native import DeviceBuffer, DeviceCore, PinnedBuffer

__all__ = ["Device", "DeviceContext", "DeviceStatistics", "MemoryInfo", "open_device"]

_FAST_LAUNCH_AND_SYNC = 0x1 | 0x2  # ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC


@dataclass(frozen=True)
class MemoryInfo:
    """Device memory in bytes (aclrtGetMemInfo)."""

    free: int
    total: int


@dataclass(frozen=True)
class DeviceStatistics:
    """A snapshot.

    Attributes:
        streams: Streams that are open through this object.
        in_flight: Operations that the device has not finished.
        queued: Operations that wait on the host.
        reports: Reports asked of the device so far (aclrtLaunchCallback).
        device_live_bytes: Device memory in use, rounded up to size classes.
        device_cached_bytes: Device memory kept for reuse.
        pinned_live_bytes: Pinned host memory in use.
        pinned_cached_bytes: Pinned host memory kept for reuse.
        staged_copies: Copies from or to pageable memory so far, which went through pinned memory.
        staged_bytes: Their bytes.
    """

    streams: int
    in_flight: int
    queued: int
    reports: int
    device_live_bytes: int
    device_cached_bytes: int
    pinned_live_bytes: int
    pinned_cached_bytes: int
    staged_copies: int
    staged_bytes: int


class Device(Closing):
    """An open device. Made by `open_device`.

    Attributes:
        index: Index of the device.
        backend: Which library drives it, "cann" or "sim".
    """

    def __init__(self, opened: Opened, backend: Backend) -> None:
        self._opened = opened
        self._streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._models: weakref.WeakSet[Model] = weakref.WeakSet()
        self._closed = False
        self._to_be_closed = True
        self._released = False
        self._release_lock = threading.Lock()
        self.index: int = opened.core.index
        self.backend = backend.kind

    @property
    def closed(self) -> bool:
        """Whether it takes no more work."""
        return self._closed

    @property
    def _core(self) -> DeviceCore:
        return self._opened.core

    # --- streams ---

    def create_stream(self, *, priority: int = 0, flags: int = _FAST_LAUNCH_AND_SYNC) -> StreamContext:
        """A new stream, for `async with` or `await` (aclrtCreateStreamWithConfig). Created by a worker thread.

        Args:
            priority: 0 is the highest; the library clamps what is out of range.
            flags: Stream flags of AscendCL; by default fast launch and fast synchronise.

        Raises:
            TypeError, ValueError: `priority` or `flags` is no number of 32 bits.
            ResourceError: the device has no stream left.
            RuntimeClosedError: the device is closed.
        """
        self._check_open()
        priority = whole("priority", priority, 0, 2**32 - 1, "a priority")
        flags = whole("flags", flags, 0, 2**32 - 1, "flags of aclrtCreateStreamWithConfig")
        opening = Stream._open(self, _debug.here(), lambda stream: stream._create(self._core, priority, flags))
        return StreamContext(opening, "create_stream")

    @coroutine_function
    def wrap_stream(self, handle: int) -> StreamContext:
        """A stream that somebody else made, such as `torch_npu.npu.current_stream().npu_stream`.

        For `async with` or `await`. It must belong to the primary context of this device. Work is submitted to it as to
        any stream. Its completion is seen through events and a private stream, so that its owner's own callbacks are
        left alone. Closing the returned object waits for what was submitted through it and leaves the stream itself
        alone.

        Raises (when entered or awaited):
            TypeError, ValueError: `handle` is no number of 64 bits.
            RuntimeClosedError: the device is closed.
        """
        return StreamContext(self._wrap_stream(handle, _debug.here()), "wrap_stream")

    async def _wrap_stream(self, handle: int, made_at: _debug.Stack | None) -> Stream:
        self._check_open()
        handle = whole("handle", handle, 0, 2**64 - 1, "the handle of a stream")
        return await Stream._open(self, made_at, lambda stream: stream._wrap(self._core, handle))

    def _remember_stream(self, stream: Stream) -> None:
        self._streams.add(stream)
        stream._to_be_closed = True

    def _forget_stream(self, stream: Stream) -> None:
        self._streams.discard(stream)

    # --- memory ---

    def empty(self, shape: int | Sequence[int], dtype: DTypeLike = "float32") -> DeviceBuffer:
        """Device memory for an array; its contents are undefined (aclrtMalloc).

        Returns at once. Memory comes from a pool; what the pool does not have is allocated by a worker thread, and
        operations that use the buffer wait for it on the host. When there is no memory, those operations raise
        `OutOfMemoryError`.

        Raises:
            TypeError, ValueError: no shape, or a dtype that a device cannot hold; the message says why.
            RuntimeClosedError: the device is closed.
        """
        self._check_open()
        return self._core.empty(shape, dtype)

    def empty_like(self, array: Any) -> DeviceBuffer:
        """Device memory with the shape and dtype of an array or buffer; see `empty`."""
        if not (hasattr(array, "shape") and hasattr(array, "dtype")):
            raise TypeError(f"empty_like takes an array or a buffer, which has a shape and a dtype, not {array!r}")
        return self.empty(array.shape, array.dtype)

    @coroutine_function
    def pinned(self, shape: int | Sequence[int], dtype: DTypeLike = "float32") -> Coroutine[Any, Any, PinnedBuffer]:
        """Pinned host memory for an array; its contents are undefined (aclrtMallocHost).

        Copies between it and the device need no staging. `buffer.array` is a numpy view. It is awaited, unlike `empty`,
        because the host may look into it at once.

        Raises:
            OutOfMemoryError: there is none left.
        """
        return self._pinned(shape, dtype, _debug.here())

    async def _pinned(self, shape: int | Sequence[int], dtype: DTypeLike, made_at: _debug.Stack | None) -> PinnedBuffer:
        self._check_open()
        return await run_blocking(lambda: self._core.pinned(shape, dtype, made_at))

    _pinned.__qualname__ = "Device.pinned"  # what Python warns of when nobody awaits it

    async def memory_info(self) -> MemoryInfo:
        """Free and total device memory, of all processes (aclrtGetMemInfo). Awaited, as the driver is asked."""
        self._check_open()
        return MemoryInfo(*await run_blocking(self._core.memory_info))

    # --- models ---

    @coroutine_function
    def load_model(
        self,
        model: str | os.PathLike[str] | bytes,
        *,
        name: str | None = None,
        instances: int = 1,
        concurrency: int | None = None,
    ) -> ModelContext:
        """Load a model from a file or from bytes, for `async with` or `await` (aclmdlLoadFromFile, aclmdlLoadFromMem).
        Loaded by a worker thread.

        Args:
            model: Path of an `.om` file; on the simulator also of an `.onnx` file or of a model description
                (docs/simulator/model-description.md). Or the bytes of one.
            name: What it is called in messages; by default the file name.
            instances: How often it is loaded, and so how many of its runs there can be at once. Each instance has its
                own weights on the device.
            concurrency: How many calls have buffers on the device at once; more wait on the host, in their order. By
                default 8 for each instance; three are enough for copies to overlap with runs.

        Raises (when entered or awaited):
            FileNotFoundError, IsADirectoryError: no such file.
            TypeError, ValueError: `model` is neither path nor bytes, is empty, or no regular file; `name` is no text;
                `instances` or `concurrency` is no number that makes sense.
            ModelError, AclError: it is not a model that this device can run; the message says why.
        """
        opening = self._load_model(model, name, instances, concurrency, _debug.here())
        return ModelContext(opening, "load_model")

    async def _load_model(
        self,
        model: str | os.PathLike[str] | bytes,
        name: str | None,
        instances: int,
        concurrency: int | None,
        made_at: _debug.Stack | None,
    ) -> Model:
        self._check_open()
        loaded = await Model._load(self, model, name, instances, concurrency, made_at)
        self._models.add(loaded)
        return loaded

    # --- the device as a whole ---

    @property
    def context(self) -> int:
        """The `aclrtContext` (the primary one), for foreign code."""
        return self._core.context

    def statistics(self) -> DeviceStatistics:
        """What is going on right now."""
        streams = list(self._streams)
        pools = self._core.pool_statistics()
        return DeviceStatistics(
            streams=len(streams),
            in_flight=sum(stream.in_flight for stream in streams),
            queued=sum(stream.queued for stream in streams),
            reports=self._core.callbacks_launched,
            **{key: value for key, value in pools.items() if not key.endswith("blocks")},
        )

    def health(self) -> DeviceHealth:
        """Whether it works, and whether it gets on. Never blocks."""
        return replace(health_of(self._core), state="closed") if self._closed else health_of(self._core)

    async def reset(self) -> None:
        """Give up whatever is on the device and reset it by force (aclrtResetDeviceForce, aclrtSetDevice).

        For a device that is out of service, or hangs. It is taken from everybody in this process, other libraries
        included. Operations in flight raise `DeviceLostError`. Streams, models, device buffers and events made before
        are dead: using them raises `RuntimeClosedError` or `ValueError`, closing them does nothing. All `Device`
        objects for this device go on with it, and make new ones. Several resets at once are one.

        Raises:
            DeviceLostError: the device has not come back. It stays out of service; try again later.
            UnsupportedError: the library cannot reset by force; restart the process.
            RuntimeClosedError: this object is closed.
        """
        self._check_open()
        _native.check_fork()
        core = self._core
        await run_blocking(lambda: self._opened.reset(core), now=True)

    async def close(self) -> None:
        """Close its models and streams, wait for what was accepted, and give the device back with its last user.

        Buffers of a closed device can no longer be used; arrays over pinned memory stay readable. May be called again.
        A cancelled close leaves the device closed to submits; it is given back once it is past its work.
        """
        try:
            await self._close()
        except AioascendError:
            raise
        except BaseException:
            for stream in list(self._streams):
                stream._destroy_when_drained()
            if not sys.is_finalizing():  # when no thread can be started, and nothing needs to be given back
                threading.Thread(target=self._release, name="aioascend-release", daemon=True).start()
            raise

    async def _close(self) -> None:
        self._closed = True
        if _native.forked():
            return
        for model in list(self._models):
            model._refuse()
        for stream in list(self._streams):
            if stream._to_be_closed:  # those of models are closed by them, when they are through with their calls
                stream._close()
        failures: list[AioascendError] = []
        resources: list[Model | Stream] = [*self._models, *self._streams]
        for resource in resources:
            try:
                await resource.close()
            except AioascendError as error:  # noqa: PERF203 - the others are given back all the same
                failures.append(error)
        await run_blocking(self._release, now=True)
        # That a lost device refuses what belongs to closing is no news, and nothing is left to be done about it.
        for failure in failures:
            if getattr(failure, "retry", "") != "gone":
                raise failure

    def _release(self) -> None:
        with self._release_lock:
            if not self._released:
                self._released = True
                self._opened.release()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeClosedError(f"device {self.index} is closed")

    def __repr__(self) -> str:
        return f"<Device {self.index} ({self.backend}){', closed' if self._closed else ''}>"


class DeviceContext(Opening[Device]):
    """A device about to be opened: `async with` it, or `await` it and close the device yourself."""


async def _open_device(
    backend_name: str | None, index: int, options: dict[str, int], made_at: _debug.Stack | None
) -> Device:
    _native.check_fork()
    backend = await run_blocking(lambda: load_backend(backend_name))
    opened = await run_blocking(lambda: Opened.acquire(backend, index, options), undo=lambda made: made.release())
    device = Device(opened, backend)
    device._made_at = made_at
    return device


def open_device(
    index: int = 0,
    *,
    backend: str | None = None,
    flight_limit: int | None = None,
    report_timeout: float | None = None,
    device_cache_bytes: int | None = None,
    pinned_cache_bytes: int | None = None,
) -> DeviceContext:
    """Open a device, for `async with` or `await` (aclInit, aclrtSetDevice). Opened by a worker thread.

    A process opens a device once, however often it is opened here; the last close gives it back. All share its primary
    context, which is the one that torch_npu and pyACL programs use too. The library itself is not finalized.

    Args:
        index: Index of the device.
        backend: "auto" (CANN where there is one, else the simulator), "cann" or "sim". By default AIOASCEND_BACKEND,
            else "auto".
        flight_limit: Operations of one stream that the device has at the same time; more wait on the host. By default
            512, which the queues of all chips hold with room to spare.
        report_timeout: Seconds after which an idle stream that still owes a completion report is given up, and its
            operations raise `ReportLostError`. By default 2.
        device_cache_bytes: Freed device memory kept for reuse, by default 256 MiB.
        pinned_cache_bytes: Freed pinned memory kept for reuse, by default 256 MiB.

    Raises:
        TypeError, ValueError: a number is not one, or out of its range; the message names both.

    Raises (when entered or awaited):
        BackendError: no ACL library could be loaded; lists every attempt.
        ArgumentError: no such device.
        DeviceError: the device cannot be opened.
        ForkError: the process was forked after the runtime was started.
    """
    options: dict[str, int] = {}
    if flight_limit is not None:  # what the queue of a stream holds
        options["flight_limit"] = whole("flight_limit", flight_limit, 2, 1024, "a number of operations")
    if report_timeout is not None:
        options["report_timeout_ms"] = max(1, round(seconds("report_timeout", report_timeout, 1e6) * 1000))
    for name, size in (("device_cache_bytes", device_cache_bytes), ("pinned_cache_bytes", pinned_cache_bytes)):
        if size is not None:
            options[name] = whole(name, size, 0, 2**62, "a number of bytes")
    index = whole("index", index, 0, 2**31 - 1, "the index of a device")
    return DeviceContext(_open_device(backend, index, options, _debug.here()), "open_device")
