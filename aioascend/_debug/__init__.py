# SPDX-License-Identifier: Apache-2.0
"""Debug mode, below the extension: what it is told by, the stacks it keeps, and the threads that look around.

The extension calls in here, with what it has in its hands; what users see of it is `aioascend.debug`.
"""

from aioascend._debug.leaks import made_at, report_pinned
from aioascend._debug.loops import watch_asyncio, watch_trio
from aioascend._debug.settings import Settings, settings
from aioascend._debug.stacks import (
    Once,
    Stack,
    add_note,
    annotate,
    called_at,
    here,
    logger,
    reported,
    shown,
    stack_here,
)
from aioascend._debug.stalls import StreamState, Task, Wait, watch_stalls

__all__ = [
    "Once",
    "Settings",
    "Stack",
    "StreamState",
    "Task",
    "Wait",
    "add_note",
    "annotate",
    "called_at",
    "here",
    "logger",
    "made_at",
    "report_pinned",
    "reported",
    "settings",
    "shown",
    "stack_here",
    "watch_asyncio",
    "watch_stalls",
    "watch_trio",
]
