# SPDX-License-Identifier: Apache-2.0
"""What the simulator's controls take: streams, devices, numbers, times; checked and as C wants them."""

from __future__ import annotations

import operator
from typing import Protocol, SupportsIndex, TypeAlias

from aioascend._arguments import whole

TASK_KINDS = (
    "memcpy_h2d",
    "memcpy_d2h",
    "memcpy_d2d",
    "memset",
    "execute",
    "callback",
    "host_func",
    "event_record",
    "event_wait",
    "event_reset",
    "notify_record",
    "notify_wait",
)
"""The kinds of tasks a stream runs."""

LIVE_OBJECTS = (
    "streams",
    "events",
    "notifies",
    "contexts",
    "device_bytes",
    "host_bytes",
    "device_blocks",
    "host_blocks",
    "models",
    "datasets",
    "data_buffers",
    "subscriptions",
    "tasks",
)
"""What `Simulator.live` counts. "streams" leaves out default streams; "tasks" are those queued or running."""


class _HasHandle(Protocol):
    @property
    def handle(self) -> int: ...


class _HasIndex(Protocol):
    @property
    def index(self) -> int: ...


StreamLike: TypeAlias = int | _HasHandle  # an `aioascend.Stream`, or an aclrtStream as a number
DeviceLike: TypeAlias = int | _HasIndex  # an `aioascend.Device`, or its index


def is_stream(stream: StreamLike | None, device: DeviceLike | None) -> bool:
    if (stream is None) == (device is None):
        raise TypeError("give either a stream or device=...")
    return stream is not None


def handle_of(stream: StreamLike | None) -> int:
    return _number("stream", stream, "handle", "an aioascend.Stream, or the handle of a stream", 0, 2**64 - 1)


def index_of(device: DeviceLike | None) -> int:
    """The index; -1, which the control functions take for all devices, for None."""
    if device is None:
        return -1
    return _number("device", device, "index", "an aioascend.Device, the index of one, or None for all", -1, 2**31 - 1)


def _number(name: str, given: object, attribute: str, what: str, least: int, most: int) -> int:
    number = given if isinstance(given, SupportsIndex) else getattr(given, attribute, None)
    problem = f"{name} must be {what}, not {given!r}"
    if isinstance(number, bool) or not isinstance(number, SupportsIndex):
        raise TypeError(problem)
    if not least <= operator.index(number) <= most:
        raise ValueError(problem)
    return operator.index(number)


def count_of(name: str, value: int, least: int = 1, most: int = 2**64 - 1) -> int:
    return whole(name, value, least, most, "a whole number")


def limit(name: str, value: int | None, most: int = 2**32 - 1) -> int:
    """A limit that None takes away, for which the control functions want 0."""
    return 0 if value is None else count_of(name, value, most=most)


def failure(code: int) -> int:
    if code == 0:
        raise ValueError("code 0 means success; give the ACL code of a failure, such as 507015")
    return count_of("code", code, most=2**31 - 1)


def choice(name: str, value: str, choices: tuple[str, ...]) -> int:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")
    return choices.index(value)


def nanoseconds(seconds: float) -> int:
    if not 0 <= seconds < 1e9:
        raise ValueError(f"seconds must not be negative, nor above 1e9, got {seconds}")
    return round(seconds * 1e9)


def milliseconds(timeout: float | None) -> int:
    if timeout is None:
        return -1
    if not 0 <= timeout <= 2e6:
        raise ValueError(f"timeout must be 0 to 2e6 seconds, or None for no limit, not {timeout}")
    return round(timeout * 1000)
