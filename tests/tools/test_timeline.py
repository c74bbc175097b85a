# SPDX-License-Identifier: Apache-2.0
"""Sums over a timeline, on timelines made by hand."""

from __future__ import annotations

import pytest

from aioascend.testing import TaskRecord, unit_overlap


def task(unit: str, start_ns: int, end_ns: int, index: int = 0, device: int = 0) -> TaskRecord:
    return TaskRecord(
        task_id=1,
        stream_id=1,
        device=device,
        kind="execute",
        name="",
        unit=unit,
        unit_index=index,
        queued_ns=0,
        start_ns=start_ns,
        end_ns=end_ns,
        nbytes=0,
        code=0,
    )


def test_one_after_the_other_shares_nothing() -> None:
    overlap = unit_overlap([task("copy_in", 1000, 2000), task("ai_core", 2000, 5000)])
    assert overlap.span == pytest.approx(4e-6)
    assert overlap.busy == {"copy_in": 0.25, "ai_core": 0.75}
    assert overlap.active == 1.0
    assert overlap.shared == 0.0


def test_time_with_two_units_at_work_is_shared() -> None:
    overlap = unit_overlap([task("ai_core", 500, 1500), task("copy_in", 0, 1000), task("copy_out", 1750, 2000)])
    assert overlap.shared == 0.25
    assert overlap.active == 0.875
    assert overlap.busy == {"copy_in": 0.5, "ai_core": 0.5, "copy_out": 0.125}


def test_ai_cores_are_units_of_their_own_and_busy_together_once() -> None:
    overlap = unit_overlap([task("ai_core", 0, 100, index=0), task("ai_core", 0, 50, index=1)])
    assert overlap.busy == {"ai_core": 1.0}
    assert overlap.shared == 0.5


def test_devices_are_told_apart() -> None:
    assert unit_overlap([task("copy_in", 0, 100), task("copy_in", 0, 100, device=1)]).shared == 1.0


@pytest.mark.parametrize("unit", ["none", "host"])
def test_what_occupies_no_unit_does_not_count(unit: str) -> None:
    overlap = unit_overlap([task("copy_in", 0, 100), task(unit, 0, 1000)])
    assert overlap.span == pytest.approx(1e-7)
    assert overlap.busy == {"copy_in": 1.0}
    assert overlap.shared == 0.0


@pytest.mark.parametrize("records", [[], [task("copy_in", 5, 5)]])
def test_no_work_is_all_zeros(records: list[TaskRecord]) -> None:
    overlap = unit_overlap(records)
    assert (overlap.span, overlap.busy, overlap.active, overlap.shared) == (0.0, {}, 0.0, 0.0)


def test_seconds_of_a_record() -> None:
    record = TaskRecord(
        3, 2, 1, "memset", "", "none", 0, queued_ns=1_000, start_ns=2_000, end_ns=5_000, nbytes=8, code=0
    )
    assert record.waited == pytest.approx(1e-6)
    assert record.duration == pytest.approx(3e-6)
