# SPDX-License-Identifier: Apache-2.0
"""Words of messages."""

from __future__ import annotations


def counted(count: int, what: str) -> str:
    """The number and its noun, which is given in the singular: "1 input", "2 inputs"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
