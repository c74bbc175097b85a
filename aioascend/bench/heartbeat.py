# SPDX-License-Identifier: Apache-2.0
"""How late an event loop comes to what it watches: a timer of the kernel, and an echo over TCP, once a millisecond.

The timer is a timerfd on an absolute schedule, so a lag is the distance to when the beat was due, however late the one
before; call_later could not tell, as its own timing has a granularity of a millisecond on some loops. A beat that was
missed counts as well. Each beat sends one message to an ordinary asyncio server in the same loop, which sends it back:
in between beats, so the two do not disturb each other unless something else holds up the loop.
"""

from __future__ import annotations

import asyncio
import collections
import ctypes
import os
import struct
import time

__all__ = ["Heartbeat"]

PERIOD_NS = 1_000_000
_TFD_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
_TFD_TIMER_ABSTIME = 1
_MESSAGE = b"12345678"


class _Timer(ctypes.Structure):
    """`struct itimerspec`."""

    _fields_ = tuple((name, ctypes.c_long) for name in ("interval_s", "interval_ns", "value_s", "value_ns"))


class Heartbeat(asyncio.Protocol):
    """Measures from `begin` to `close`, on the running asyncio loop. Lags and echo times are in microseconds."""

    def __init__(self) -> None:
        self.lags: list[float] = []
        self.echoes: list[float] = []
        self._sent: collections.deque[int] = collections.deque()
        self._empty = asyncio.Event()
        self._ending = False
        self._served = asyncio.Event()

    async def open(self) -> None:
        """Starts the server and connects to it."""
        loop = asyncio.get_running_loop()
        self._server = await asyncio.start_server(self._echo, "127.0.0.1", 0)
        address = self._server.sockets[0].getsockname()
        self._transport, _ = await loop.create_connection(lambda: self, *address)

    def begin(self) -> None:
        """The first beat is due in a millisecond."""
        self._fd, self._due = _new_timer()
        asyncio.get_running_loop().add_reader(self._fd, self._beat)

    async def close(self) -> None:
        """No more beats; ends when the last message is back."""
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)
        self._ending = True
        if self._sent:
            await self._empty.wait()
        self._transport.close()
        await self._served.wait()
        self._server.close()
        await self._server.wait_closed()

    def _beat(self) -> None:
        try:
            (beats,) = struct.unpack("Q", os.read(self._fd, 8))
        except BlockingIOError:
            return
        now = time.monotonic_ns()
        for _ in range(beats):
            self.lags.append((now - self._due) / 1000)
            self._due += PERIOD_NS
        self._sent.append(time.monotonic_ns())
        self._transport.write(_MESSAGE)

    async def _echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1024):
            writer.write(data)
            await writer.drain()
        writer.close()
        self._served.set()

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        for _ in range(len(data) // len(_MESSAGE)):
            self.echoes.append((now - self._sent.popleft()) / 1000)
        if self._ending and not self._sent:
            self._empty.set()


def _new_timer() -> tuple[int, int]:
    """A timerfd that fires each period, and when it does first."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.timerfd_create(time.CLOCK_MONOTONIC, _TFD_NONBLOCK_CLOEXEC)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "timerfd_create")
    first = time.monotonic_ns() + PERIOD_NS
    spec = _Timer(0, PERIOD_NS, first // 1_000_000_000, first % 1_000_000_000)
    if libc.timerfd_settime(fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None) != 0:
        os.close(fd)
        raise OSError(ctypes.get_errno(), "timerfd_settime")
    return fd, first
