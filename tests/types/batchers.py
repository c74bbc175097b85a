# SPDX-License-Identifier: Apache-2.0
"""What type checkers make of batchers. Checked by mypy with the package; never run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import assert_type

import aioascend as aa


async def lengths(items: list[str]) -> Sequence[int]:
    return [len(item) for item in items]


async def of_a_function() -> None:
    async with aa.Batcher(lengths, max_batch=8, max_delay=0.002) as batcher:
        assert_type(batcher, aa.Batcher[str, int])
        assert_type(await batcher("one", priority=1, timeout=0.5), int)
        await batcher(1)  # type: ignore[arg-type]
    aa.Batcher(lengths, max_size=8)  # type: ignore[call-overload]


async def of_a_model(model: aa.Model) -> None:
    async with aa.Batcher(model) as batcher:
        assert_type(await batcher(image=[1.0]), Any)


async def with_hooks(model: aa.Model) -> None:
    def collate(items: list[str]) -> bytes:
        return "".join(items).encode()

    def split(output: Any, count: int) -> list[float]:
        return [float(output)] * count

    async with aa.Batcher(model, collate=collate, split=split) as batcher:
        assert_type(batcher, aa.Batcher[str, float])
        assert_type(await batcher("one"), float)
