# SPDX-License-Identifier: Apache-2.0
"""What type checkers make of pools. Checked by mypy with the package; never run."""

from __future__ import annotations

from typing_extensions import assert_type

import aioascend as aa


async def entered(npu: aa.Device) -> None:
    async with aa.StreamPool(npu, size=(1, 8)) as pool, pool.acquire(timeout=1, priority=2) as stream:
        assert_type(pool, aa.StreamPool)
        assert_type(stream, aa.Stream)
        assert_type(pool.statistics(), aa.StreamPoolStatistics)
