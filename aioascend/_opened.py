# SPDX-License-Identifier: Apache-2.0
"""A device as the process has it: opened once, shared by all who open it, reset for all of them."""

from __future__ import annotations

import threading
from typing import ClassVar

from aioascend import _debug, _native
from aioascend._backend import Backend
from aioascend.errors import AclError, DeviceLostError, RuntimeClosedError, UnsupportedError


class Opened:
    """One device, closed with its last user.

    Attributes:
        core: What there is of it now; a reset makes a new one, and leaves the old one closed.
    """

    _all: ClassVar[dict[tuple[str, int], Opened]] = {}
    _all_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, core: _native.DeviceCore, options: dict[str, int]) -> None:
        self.core = core
        self.options = options
        self.users = 0
        self.gone = False
        self.lock = threading.Lock()  # opening and closing take their time, and only this device's users wait

    @classmethod
    def acquire(cls, backend: Backend, index: int, options: dict[str, int]) -> Opened:
        """Blocks. Opens the device unless it is open."""
        key = (backend.library.path, index)
        while True:
            with cls._all_lock:
                opened = cls._all.get(key)
                if opened is None:
                    opened = cls._all[key] = Opened(_native.DeviceCore(backend.library, index, **options), options)
            with opened.lock:
                if opened.gone:
                    continue
                if options and opened.options != options:
                    raise ValueError(
                        f"device {index} is open with {opened.options or 'the default options'}, not {options}; "
                        "open it with the same ones, or close it first"
                    )
                if opened.users == 0:
                    try:
                        opened.core.open()
                    except BaseException:
                        opened._forget()
                        raise
                else:
                    opened.core.check("open_device")
                opened.users += 1
                return opened

    def release(self) -> None:
        """Blocks. Closes the device with its last user."""
        with self.lock:
            self.users -= 1
            if self.users == 0:
                self.core.awaits_reset = False
                try:
                    if not self.core.close_later():
                        self.core.close()
                        _debug.report_pinned(self.core.index, self.core.live_pinned())
                finally:
                    self._forget()

    def reset(self, seen: _native.DeviceCore) -> None:
        """Blocks. Resets the device for all who have it open, unless that has happened since `seen` was its core."""
        with self.lock:
            if self.gone:
                raise RuntimeClosedError(f"device {self.core.index} is closed")
            if self.core is not seen:
                return
            self.core.awaits_reset = True
            try:
                self.core.reset_by_force()
            except UnsupportedError:
                self.core.awaits_reset = False  # it has not even begun
                raise
            core = _native.DeviceCore(self.core.library, self.core.index, **self.options)
            try:
                core.open()
            except AclError as error:
                raise DeviceLostError(error.code, error.where, error.detail, device=self.core.index) from error
            self.core.awaits_reset = False
            self.core = core

    @classmethod
    def all(cls) -> list[Opened]:
        """The devices that are open."""
        with cls._all_lock:
            return [opened for opened in cls._all.values() if opened.users]

    def _forget(self) -> None:
        self.gone = True
        with self._all_lock:
            for key in [key for key, opened in self._all.items() if opened is self]:
                del self._all[key]
