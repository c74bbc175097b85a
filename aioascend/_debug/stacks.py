# SPDX-License-Identifier: Apache-2.0
"""Stacks: where something was made, submitted or called."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import traceback
from collections.abc import Generator, Hashable
from pathlib import Path
from types import FrameType
from typing import TypeAlias

from aioascend._debug.settings import settings

logger = logging.getLogger("aioascend.debug")

Stack: TypeAlias = traceback.StackSummary

_DEPTH = 10  # innermost frames that are kept, as asyncio does
_HERE = str(Path(__file__).parent) + os.sep
_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_LOOPS = {"asyncio", "uvloop", "trio", "anyio", "concurrent", "threading"}
_RUNNERS = {"_run", "run", "run_forever", "run_until_complete", "unrolled_run"}  # of loops, threads and tasks


def stack_of(frame: FrameType | None) -> Stack:
    """The stack that ends in this frame, outermost first, without the loop around it and without what looks at it here.
    Source is read when printed."""
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    frames: list[tuple[FrameType, int]] = []
    called = False
    while frame is not None and len(frames) < _DEPTH and not (called and _of_loop(frame)):
        called = called or not _of_loop(frame)
        frames.append((frame, frame.f_lineno))
        frame = frame.f_back
    return Stack.extract(iter(reversed(frames)), lookup_lines=False)


def stack_here() -> Stack:
    """The stack of whoever called into aioascend, however deep in it this is."""
    innermost = frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
    caller: FrameType | None = frame
    while caller is not None and _of_loop(caller) and caller.f_code.co_name not in _RUNNERS:
        caller = caller.f_back  # start_soon calls what it is given
    # In a task of its own, which its loop called, where in aioascend this is says more.
    return stack_of(innermost if caller is None or _of_loop(caller) else caller)


def _of_loop(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).split(".")[0] in _LOOPS


class _Thread(threading.local):
    called_at: Stack | None = None


_thread = _Thread()


@contextlib.contextmanager
def called_at(stack: Stack | None) -> Generator[None]:
    """What this thread submits and makes in the block is for a call that was made there, and whose task may have been
    started by a loop since. Nothing may be awaited in it."""
    before, _thread.called_at = _thread.called_at, stack
    try:
        yield
    finally:
        _thread.called_at = before


def here() -> Stack | None:
    """In debug mode where `called_at` says, else `stack_here`; None without it."""
    return (_thread.called_at or stack_here()) if settings.enabled else None


def shown(stack: Stack) -> str:
    """As a traceback shows it."""
    return "".join(stack.format()).rstrip()


def add_note(error: BaseException, note: str) -> None:
    """A traceback shows notes, pickling keeps them."""
    # What the method of this name does from Python 3.11 on; before, the backport of exception groups prints them.
    error.__dict__.setdefault("__notes__", []).append(note)


def annotate(error: BaseException, stack: Stack | None) -> None:
    """Notes on the error where its operation was submitted."""
    if stack is not None:
        add_note(error, f"submitted at\n{shown(stack)}")


class Once:
    """Says of each place once that it is new."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: set[Hashable] = set()

    def new(self, stack: Stack, *what: Hashable) -> bool:
        place = (*what, stack[-1].filename, stack[-1].lineno) if stack else what
        with self._lock:
            known = place in self._seen
            self._seen.add(place)
        return not known


reported = Once()
