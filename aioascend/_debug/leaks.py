# SPDX-License-Identifier: Apache-2.0
"""Says what was left open, or is still held, and where it was made."""

from __future__ import annotations

from collections.abc import Sequence

from aioascend._debug.stacks import Stack, logger, shown
from aioascend._words import counted


def made_at(stack: Stack | None) -> str:
    """For the end of a message."""
    return f", made at\n{shown(stack)}" if stack is not None else ""


def report_pinned(device: int, buffers: Sequence[tuple[str, int, Stack | None]]) -> None:
    """The device has been closed, and these pinned buffers (what, bytes, maker) are still referred to.

    Their memory stays in use; that of device buffers went with the device.
    """
    alike: dict[str, list[int]] = {}
    for what, size, stack in buffers:
        alike.setdefault(f"{what}{made_at(stack)}", []).append(size)
    if alike:
        parts = [f"{counted(sum(sizes), 'byte')} in {len(sizes)} x {text}" for text, sizes in alike.items()]
        total = counted(sum(map(sum, alike.values())), "byte")
        logger.warning(
            "device %d is closed, and pinned memory of it is still in use: %s\n%s",
            device,
            total,
            "\n".join(parts),
        )
