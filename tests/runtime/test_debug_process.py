# SPDX-License-Identifier: Apache-2.0
"""AIOASCEND_DEBUG=1 in processes of their own, which must say nothing when there is nothing to be said."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


def run_in_debug_mode(code: str, *arguments: str, returncode: int = 0) -> None:
    """A program of its own, which must say nothing."""
    switches = {"AIOASCEND_DEBUG": "1", "AIOASCEND_DEBUG_SLOW": "60", "AIOASCEND_BACKEND": "sim"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "faulthandler", "-c", textwrap.dedent(code), *arguments],
        env=os.environ | switches,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.returncode == returncode


SMOKE = """
import asyncio, gc, sys
from pathlib import Path
import anyio
import numpy as np
import aioascend as aa
from aioascend import debug
from aioascend.testing import simulator

folder, loop = sys.argv[1:]
sim = simulator("sim")
assert debug.enabled


async def main():
    before = debug.counters()
    await phases()
    gc.collect()
    assert debug.counters().streams == debug.counters().models == debug.counters().device_blocks == 0
    assert debug.counters().threads == before.threads


async def phases():
    async with aa.open_device(0) as npu:
        await npu.memory_info()
        async with npu.create_stream() as stream, await npu.load_model(f"{folder}/copy.toml") as copy:
            assert (await copy(np.ones((2, 8), "float32")) == 1).all()
            pinned = await npu.pinned(1 << 20, "uint8")
            buffer = npu.empty(1 << 20, "uint8")
            await stream.memcpy(buffer, pinned)
            await stream.memcpy(np.zeros(1 << 20, "uint8"), buffer)
            assert buffer.address and pinned.address
            sim.fail_task(stream=stream)
            try:
                await stream.memset(buffer, 1)
            except aa.TaskError as error:
                assert "in phases" in str(error.__notes__)
            with anyio.move_on_after(0):
                await stream.memset(buffer, 2)
            async with anyio.create_task_group() as group:
                for _ in range(600):
                    group.start_soon(once, stream, buffer)
        async with await npu.load_model(f"{folder}/dynamic.toml") as dynamic:
            for extent in (2, 3, 2):
                assert (await dynamic(np.ones((extent, 4), "float32"))).shape == (extent, 4)
        del buffer, pinned, stream, copy, dynamic


async def once(stream, buffer):
    await stream.memset(buffer, 3)


if loop == "uvloop":
    import uvloop
    uvloop.run(main())
else:
    anyio.run(main, backend=loop)
"""

COPY = """
inputs = [{ name = "x", shape = [2, 8] }]
outputs = [{ name = "y", shape = [2, 8], fill = "copy" }]
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio"])
def test_the_runtime_itself_blocks_no_loop(loop: str, tmp_path: Path) -> None:
    """Opening, loading, calls, copies of all kinds, failures, cancels, closing: nothing is found."""
    (tmp_path / "copy.toml").write_text(COPY)
    (tmp_path / "dynamic.toml").write_text(COPY.replace("[2, 8]", "[-1, 4]"))
    run_in_debug_mode(SMOKE, str(tmp_path), loop)


def test_exit_with_work_in_flight_and_threads_that_watch() -> None:
    code = """
        import asyncio, sys
        import aioascend as aa
        from aioascend.testing import simulator

        async def main():
            npu = await aa.open_device(0)
            stream = await npu.create_stream()
            buffer = npu.empty(1 << 20, "uint8")
            await stream.memset(buffer, 0)
            simulator().hold(stream)
            for _ in range(600):
                stream.memset(buffer, 1)
            sys.exit(3)

        asyncio.run(main())
        """
    run_in_debug_mode(code, returncode=3)
