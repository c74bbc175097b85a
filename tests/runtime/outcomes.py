# SPDX-License-Identifier: Apache-2.0
"""What comes of operations, and devices on which something else comes of them."""

from __future__ import annotations

from collections.abc import Awaitable

import anyio

import aioascend as aa
from aioascend import _native
from aioascend._backend import Backend, load_backend
from aioascend._opened import Opened

AICORE_EXCEPTION = 507015


async def error_of(awaitable: Awaitable[object]) -> aa.AioascendError | None:
    """What awaiting it raises; bounded, should nothing come of it."""
    with anyio.fail_after(60):
        try:
            await awaitable
        except aa.AioascendError as error:
            return error
    return None


async def device_without(*functions: str) -> aa.Device:
    """Device 1 by a library that lacks these ACL functions, to be closed by the caller."""
    library = load_backend("sim").library.without(*functions)
    assert set(functions) <= set(library.missing)
    opened = Opened(_native.DeviceCore(library, 1), {})
    opened.users = 1
    await anyio.to_thread.run_sync(opened.core.open)
    return aa.Device(opened, Backend(library, "sim", ()))
