# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/simulator/control.md do what the page says."""

from __future__ import annotations

import asyncio
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

import aioascend
import aioascend.testing
from aioascend.testing import Simulator

PAGE = Path(__file__).resolve().parents[2] / "docs" / "simulator" / "control.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
TESTS = [block for block in BLOCKS if block.startswith("async def test_")]
FRAGMENTS = [block for block in BLOCKS if block not in TESTS and not block.startswith("import ")]
AROUND_A_FRAGMENT = """
async def fragment(sim):
    async with aioascend.open_device(0) as npu, npu.create_stream() as stream:
        buffer = npu.empty(1024, "uint8")
"""


async def my_pipeline() -> None:
    """Something of the reader's own."""
    async with aioascend.open_device(0) as npu, npu.create_stream() as stream:
        await stream.memset(npu.empty(1024, "uint8"), 0)


def define(source: str) -> Any:
    """The function that `source` defines."""
    names: dict[str, Any] = {
        "aioascend": aioascend,
        "asyncio": asyncio,
        "pytest": pytest,
        "my_pipeline": my_pipeline,
    }
    exec(compile(source, str(PAGE), "exec"), names)  # noqa: S102
    return list(names.values())[-1]


def test_the_page_has_examples() -> None:
    assert len(TESTS) >= 3
    assert len(FRAGMENTS) >= 4


@pytest.mark.anyio
@pytest.mark.parametrize("source", TESTS, ids=lambda source: re.findall(r"def (\w+)", source)[0])
async def test_example(sim: Simulator, source: str) -> None:
    await define(source)(sim)


@pytest.mark.anyio
@pytest.mark.parametrize("source", FRAGMENTS, ids=range(len(FRAGMENTS)))
async def test_fragment(sim: Simulator, source: str) -> None:
    await define(AROUND_A_FRAGMENT + textwrap.indent(source, " " * 8))(sim)
