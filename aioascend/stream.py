# SPDX-License-Identifier: Apache-2.0
"""Streams: where work is submitted, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aioascend import _debug, _native
from aioascend._closing import Closing, Opening
from aioascend._threads import run_blocking

if TYPE_CHECKING:
    from aioascend._native import DeviceBuffer, Operation
    from aioascend.device import Device
    from aioascend.model import Model

__all__ = ["Stream", "StreamContext"]


class Stream(_native.StreamCore, Closing):
    """An in-order queue of device work. Made by `Device.create_stream`.

    `memcpy`, `memset`, `execute` and `wait` submit and return an `Operation` at once; `record` returns an `Event`;
    `await stream` waits for everything submitted so far. Nothing here blocks the event loop: when the device's queue
    is full, or memory is still being allocated, work waits on the host and follows in order.

    Guaranteed: operations of one stream run, and are resolved, in the order of their submits. Submits from several
    threads are safe; their order is that of the calls. Not guaranteed: any order between streams, except through
    events.

    Attributes:
        device: The device it belongs to.
    """

    device: Device

    def __init__(self) -> None:
        raise TypeError("streams have no public constructor; use Device.create_stream")

    @classmethod
    async def _open(cls, device: Device, made_at: _debug.Stack | None, start: Callable[[Stream], None]) -> Stream:
        stream = cls.__new__(cls)
        stream.device = device
        stream._made_at = made_at

        def open_() -> Stream:
            start(stream)
            return stream

        await run_blocking(open_, undo=lambda made: made._destroy())
        device._remember_stream(stream)
        return stream

    def execute(self, model: Model, inputs: Sequence[DeviceBuffer], outputs: Sequence[DeviceBuffer]) -> Operation:
        """Run `model` on device buffers in stream order; see `Model.execute`."""
        if not isinstance(model, _native.ModelCore):
            raise TypeError(f"execute runs a Model, which Device.load_model returns, not {model!r}")
        return model.execute(inputs, outputs, stream=self)

    async def abort(self) -> bool:
        """Stop what runs on the stream and discard what is queued (aclrtStreamAbort). In a worker thread, up to 60 s.

        Operations in flight raise `TaskError` with code 107023; they may have run, in part. As after any failure, what
        is submitted before somebody has been told of one raises `DependencyError`: await one. Streams that wait for an
        event recorded behind the discarded work would wait for ever, so they are aborted too, with whatever is on them;
        their operations raise `DependencyError`.

        Returns:
            True: the stream goes on with what is submitted from here on. False: the device cannot abort, or the stream
            belongs to somebody else; its operations have been given up all the same, what the device does goes on, its
            buffers are kept until the device is closed, and this stream is closed. Create another one.

        Raises:
            RuntimeClosedError: the stream is closed.
        """
        return await run_blocking(self._abort, now=True)

    async def close(self) -> None:
        """Stop accepting, wait until what was accepted is done, give the stream back (aclrtDestroyStream).

        Failures that no await has raised go to the exception handler of the loop. May be called again. A cancelled
        close leaves the stream closed to submits; it is given back once it is drained.
        """
        self._close()
        if _native.forked():
            return
        try:
            await self._drained()
            await run_blocking(self._destroy)
        except BaseException:
            self._destroy_when_drained()
            raise
        finally:
            self._report_untold()
            self.device._forget_stream(self)

    def _dropped(self) -> None:
        self._report_untold()

    def _give_back(self) -> None:
        self._destroy_when_drained()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.in_flight} in flight"
        return f"<Stream {self.id} on device {self.device.index}, {state}>"


class StreamContext(Opening[Stream]):
    """A stream about to be created or wrapped: `async with` it, or `await` it and close the stream yourself."""
