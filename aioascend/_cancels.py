# SPDX-License-Identifier: Apache-2.0
"""Cancels that come up in a task: of its own scopes, or of something that it awaits and somebody else has cancelled."""

from __future__ import annotations

import math

import anyio

from aioascend.errors import AioascendError

__all__ = ["cancelled_by_scope", "stray"]


def cancelled_by_scope() -> bool:
    """Whether a cancel that has come up is one of a scope, rather than that of something that was awaited."""
    return anyio.current_effective_deadline() == -math.inf


def stray(what: str, cause: BaseException) -> AioascendError:
    """The error of what was awaited in place of a cancel that is none of whoever is to be told."""
    error = AioascendError(f"{what} has ended by {cause!r}, although nobody has cancelled it")
    error.__cause__ = cause
    return error
