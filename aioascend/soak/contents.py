# SPDX-License-Identifier: Apache-2.0
"""What bytes a buffer must contain, by what was submitted; a pattern for each write."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from aioascend.soak.ledger import Submission

__all__ = [
    "BUFFER_BYTES",
    "LARGE_BYTES",
    "PATTERNS",
    "TAGS",
    "UNTOUCHED",
    "Content",
    "fill",
    "large",
    "pattern",
    "sum_of",
]

TAGS = 2048
"""Writes take TAGS + tag bytes and reads tag + 1, so that the size of a task tells which operation it is."""
BUFFER_BYTES = 2 * TAGS
LARGE_BYTES = 300 << 10
"""More than what is staged where it is submitted."""
PATTERNS = 61
UNTOUCHED = 0xA5
"""What a destination contains before something is copied into it."""


@dataclass(frozen=True, eq=False)
class Content:
    """What a buffer contains when all that led to it has succeeded.

    Attributes:
        data: The bytes.
        writer: What wrote them.
        source: What the writer copied or computed them from, if that was a buffer.
        fences: The waits that keep others from writing to the source meanwhile.
    """

    data: bytes
    writer: Submission
    source: Content | None = None
    fences: tuple[Submission, ...] = ()


def pattern(index: int) -> bytes:
    """One of PATTERNS patterns for a buffer. All are different at every place."""
    return _pattern(index % PATTERNS)


@functools.cache
def _pattern(index: int) -> bytes:
    noise = np.random.default_rng(1).integers(0, 256, BUFFER_BYTES, dtype=np.uint16)
    return ((noise + index) % 256).astype(np.uint8).tobytes()


def large(index: int) -> bytes:
    """A pattern for a large buffer."""
    return _large(index % 4)


@functools.cache
def _large(index: int) -> bytes:
    return _pattern(index) * (LARGE_BYTES // BUFFER_BYTES)


@functools.cache
def fill(value: int) -> bytes:
    """What memset makes of a buffer."""
    return bytes([value]) * BUFFER_BYTES


@functools.cache
def sum_of(data: bytes) -> bytes:
    """What the model's output "sum" is for an input that begins with `data`."""
    total = int(np.frombuffer(data, np.uint8, TAGS).sum(dtype=np.int64))
    return total.to_bytes(4, sys.byteorder)
