# SPDX-License-Identifier: Apache-2.0
"""The instances of a model: each is loaded once and runs one call at a time, while others are copied in and out."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from aioascend import _native
from aioascend._threads import run_blocking
from aioascend.errors import DependencyError
from aioascend.stream import Stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from aioascend._native import DeviceBuffer, Operation, Run
    from aioascend.device import Device

__all__ = ["Instance", "Instances", "chain"]

Copies = Iterable[tuple["DeviceBuffer | NDArray[Any]", "DeviceBuffer | NDArray[Any]"]]  # to, from


class Instance:
    """A loaded model id, the stream of its runs, and those of the copies in front of them and behind them.

    core: None for the `Model` itself, which is its own first instance, and must not be referred to from here.
    """

    def __init__(self, core: _native.ModelCore | None, copy_in: Stream, run: Stream, copy_out: Stream) -> None:
        self.core = core
        self.copy_in = copy_in
        self.run = run
        self.copy_out = copy_out

    @property
    def load(self) -> int:
        """How much is on the stream of its runs."""
        return self.run.in_flight + self.run.queued

    def submit(
        self, operations: list[Operation], copies_in: Copies, run: Run, copies_out: Copies, alone: bool
    ) -> DependencyError | None:
        """Submit a call; what was submitted is added to `operations`, even when it raises.

        alone: there is nothing to overlap with, so all goes to one stream, which needs no events.

        Returns:
            Why not all of it was: it would have been behind a failure that is known already, perhaps of its own run.
        """
        first, last = (self.run, self.run) if alone else (self.copy_in, self.copy_out)
        try:
            operations += (first.memcpy(to, source) for to, source in copies_in)
            if first is not self.run:
                operations += self.run._follow(first)
            operations.append(run.submit(self.run))
            if last is not self.run:
                operations += last._follow(self.run)
            operations += (last.memcpy(to, source) for to, source in copies_out)
        except DependencyError as refused:
            return refused
        return None


class Instances:
    """All instances of a model. `first` is the model itself."""

    def __init__(self, count: int) -> None:
        self._others = [_native.ModelCore() for _ in range(count - 1)]
        self._lock = threading.Lock()
        self._instances: list[Instance] = []  # the one that was picked last is the last
        self.streams: list[Stream] = []
        self.run_streams: tuple[Stream, ...] = ()

    def load(
        self, first: _native.ModelCore, device: Device, source: str | bytes | bytearray | memoryview, label: str
    ) -> None:
        """Blocks."""
        if isinstance(source, str):
            _check_path(source, device.backend)
        loaded: list[_native.ModelCore] = []
        try:
            for core in (first, *self._others):
                core._load_core(device._core, source, label)
                loaded.append(core)
        except BaseException:
            for core in loaded:
                core._unload()
            raise

    def unload(self, first: _native.ModelCore) -> None:
        """Blocks. Nothing may be in flight."""
        for core in (first, *self._others):
            core._unload()

    async def create_streams(self, device: Device, overlapping: bool) -> None:
        async def create() -> Stream:
            stream = await device.create_stream()
            stream._to_be_closed = False  # by the model, not by its user
            self.streams.append(stream)
            return stream

        cores = (None, *self._others)
        runs = [await create() for _ in cores]
        copy_in = await create() if overlapping else None
        self._instances = [
            Instance(core, copy_in or run, run, await create() if overlapping else run)
            for core, run in zip(cores, runs, strict=True)
        ]
        self.run_streams = tuple(runs)

    def pick(self) -> Instance:
        """The one with the least on its stream; of several the one that was not picked for the longest time."""
        if len(self._instances) == 1:
            return self._instances[0]
        with self._lock:
            instance = min(self._instances, key=lambda one: one.load)
            self._instances.remove(instance)
            self._instances.append(instance)
        return instance

    def refuse(self, first: _native.ModelCore) -> None:
        """From here on runs are refused; those in flight go on."""
        for core in (first, *self._others):
            core._close()

    def give_back_when_drained(self) -> None:
        for stream in self.streams:
            stream._destroy_when_drained()

    async def close(self, first: _native.ModelCore) -> None:
        """Wait for what was accepted, and give everything back."""
        for stream in self.streams:
            await stream.close()
        for core in (first, *self._others):
            await core._drained()
        await run_blocking(lambda: self.unload(first))

    async def give_up(self, first: _native.ModelCore) -> None:
        """Give back what there is of it: loading was not finished."""
        with anyio.CancelScope(shield=True):
            for stream in self.streams:
                await stream.close()
            await run_blocking(lambda: self.unload(first))


async def chain(operations: Sequence[Operation], refused: DependencyError | None = None) -> None:
    """Awaits the last operation of a chain; raises the error of the first that failed by itself.

    refused: what the next one would have raised, if there is one that was not submitted for that.
    """
    with contextlib.suppress(DependencyError):
        if refused is None:
            await operations[-1]
            return
    for operation in operations:  # out of the block, or the traceback would begin with what has just been caught
        await operation
    if refused is not None:
        raise refused


def _check_path(path: str, backend: str) -> None:
    if not path:
        raise ValueError("the path of a model is empty; give the path of a file")
    if os.path.isdir(path):
        raise IsADirectoryError(f"{path!r} is a directory, not a model file")
    simulated = backend == "sim" and path.endswith(".om")
    stand_ins = [Path(path).with_suffix(suffix) for suffix in (".onnx", ".toml", ".json")] if simulated else []
    candidates = [Path(path), *stand_ins]
    if not any(candidate.exists() for candidate in candidates):
        beside = ", and none with .onnx, .toml or .json beside it, which the simulator would take" if simulated else ""
        raise FileNotFoundError(f"no model file {path!r} in {os.getcwd()}{beside}")
    if not any(candidate.is_file() for candidate in candidates):
        raise ValueError(f"{path!r} is a pipe or a device, which might never end; give the path of a regular file")
