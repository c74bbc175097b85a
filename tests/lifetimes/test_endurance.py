# SPDX-License-Identifier: Apache-2.0
"""A few of the endurance runs; `python -m lifetimes.endurance` makes as many as one likes."""

from __future__ import annotations

import pytest

from lifetimes.endurance import WAYS, endure


@pytest.mark.parametrize("way", WAYS)
def test_processes_end_well(way: str) -> None:
    assert list(endure(way, range(6), parallel=2)) == []
