# SPDX-License-Identifier: Apache-2.0
"""What leaks is reported as the page on debugging shows it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "debugging.md"

PROGRAM = """\
import asyncio

import aioascend as aa


async def serve(npu):
    stream = await npu.create_stream()
    await stream.memset(npu.empty(8), 0)


async def main():
    async with aa.open_device(0, backend="sim") as npu:
        await serve(npu)
        kept = await npu.pinned((1, 3, 64, 64))


asyncio.run(main())
"""


def test_what_leaks_is_shown_as_it_is_printed(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM, encoding="utf-8")
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONWARNINGS", "PYTHONTRACEMALLOC")
    }
    done = subprocess.run(
        [sys.executable, "app.py"],
        cwd=tmp_path,
        env=environment | {"AIOASCEND_DEBUG": "1", "AIOASCEND_DEBUG_SLOW": "60"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    printed = done.stderr.replace(f"{tmp_path}/", "")
    printed = re.sub(r"^\S*/aioascend/_closing\.py:\d+", ".../aioascend/_closing.py:68", printed)
    section = PAGE.read_text(encoding="utf-8").split("## What leaks")[1].split("\n## ")[0]
    shown = re.findall(r"^```\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert len(shown) == 2
    assert printed.startswith("".join(shown))
