# SPDX-License-Identifier: Apache-2.0
"""The arithmetic: rows, ratios, goals."""

from __future__ import annotations

import dataclasses
import math
import os
import threading
from collections.abc import Iterator

import pytest

from aioascend.bench import in_flight
from aioascend.bench.goals import best, find, merge, share_of
from aioascend.bench.harness import Case, Sample, above_floor, compare, measure, row_of, stopwatch
from aioascend.bench.placement import Placement
from aioascend.bench.results import Goal, Part, Row, median_and_spread, percentile
from aioascend.bench.sections import sections
from aioascend.bench.settings import Settings

AT = {"coroutines": 64, "placement": "two"}


def row(contender: str, median: float, loop: str = "asyncio", **more: object) -> Row:
    values: dict[str, object] = {"spread": 0.1, "cpu_us_per_op": 2 * median, "counters": {"cpu_spread": 0.2}, **more}
    return Row("gather", contender, loop, dict(AT), "us/op", median, **values)  # type: ignore[arg-type]


def test_median_and_spread() -> None:
    assert median_and_spread([5.0, 1.0, 3.0, 2.0, 4.0]) == (3.0, 1.0)
    assert median_and_spread([7.0]) == (7.0, 0.0)


def test_percentiles() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert percentile(values, 0.5) == 51.0
    assert percentile(values, 0.99) == 100.0
    assert percentile([3.0], 0.99) == 3.0
    with pytest.raises(ValueError, match="the 99% percentile of no values"):
        percentile([], 0.99)


def test_a_row_has_the_medians_of_its_samples() -> None:
    case = Case("aioascend", "uvloop", dict(AT), lambda: Sample(1, 1, 1))
    samples = [Sample(100, wall * 1e-4, cpu * 1e-4, {"callbacks": cpu}) for wall, cpu in ((3, 9), (1, 8), (2, 7))]
    made = row_of("gather", case, samples)
    assert (made.median, made.unit) == (pytest.approx(2.0), "us/op")
    assert made.spread == pytest.approx(0.5)
    assert made.cpu_us_per_op == pytest.approx(8.0)
    assert made.counters["callbacks"] == 8
    other = row_of("gather", case, samples, figure="callbacks", unit="calls")
    assert (other.median, other.unit) == (8, "calls")
    assert "callbacks" not in other.counters


def test_rows_are_compared_with_those_of_the_same_setting() -> None:
    elsewhere = dataclasses.replace(row("pyacl", 0.5), parameters={"coroutines": 1})
    rows = compare([row("floor", 1.0, "-"), row("aioascend", 3.0), row("pyacl", 9.0), row("x", 6.0), elsewhere])
    by_name = {made.contender: made.ratios for made in rows[:4]}
    assert by_name["floor"] == {}
    assert by_name["aioascend"] == {"above_floor": 2.0, "to_floor": 3.0, "to_best_other": 0.5}
    assert by_name["pyacl"]["to_best_other"] == 3.0
    assert rows[4].ratios == {}


def test_time_above_the_floor_comes_with_its_doubt() -> None:
    assert above_floor(row("aioascend", 3.0), row("floor", 1.0)) == (2.0, 0.2)
    assert above_floor(row("aioascend", 3.0), row("floor", 1.0), cpu=True) == (4.0, 0.4)


def test_a_share_of_the_others_time() -> None:
    [part] = share_of("x", row("aioascend", 2.0), row("pyacl", 11.0), row("floor", 1.0), 0.125)
    assert part.value == pytest.approx(0.1)
    assert part.holds
    [part] = share_of("x", row("aioascend", 2.0), row("pyacl", 11.0), row("floor", 1.0), 0.125, cpu=True)
    assert part.value == pytest.approx(0.1)


def test_who_is_below_the_floor_is_told_of() -> None:
    [part] = share_of("x", row("aioascend", 0.5), row("pyacl", 11.0), row("floor", 1.0), 0.1)
    assert "aioascend is 0.5 us below the floor" in part.note
    [part] = share_of("x", row("aioascend", 0.9), row("pyacl", 11.0), row("floor", 1.0), 0.1)
    assert "below" not in part.note  # within the spread
    [part] = share_of("x", row("aioascend", 2.0), row("pyacl", 0.5), row("floor", 1.0), 0.1)
    assert math.isinf(part.value)
    assert "pyacl is 0.5 us below the floor" in part.note


def test_what_is_only_reported_decides_nothing() -> None:
    reported = Part("so much", 99.0)
    assert Goal("1", (Part("good", 0.5, 1.0), reported)).holds
    assert Goal("1", (Part("good", 0.5, 1.0), reported)).value == 0.5
    assert not Goal("1", (Part("bad", 2.0, 1.0), reported)).holds
    assert not Goal("1", (reported,)).holds  # nothing was held to anything


def test_growth_from_nothing_is_infinite() -> None:
    def at(count: int, cpu: float) -> Row:
        parameters: dict[str, object] = {"in_flight": count, "awaited": "list", "placement": "two"}
        return Row("in-flight", "aioascend", "asyncio", parameters, "us/op", 1.0, 0.1, cpu)

    [part] = in_flight.goal([at(64, 0.0), at(1024, 2.0)]).parts
    assert math.isinf(part.value)
    assert not part.holds
    [part] = in_flight.goal([at(64, 2.0), at(1024, 1.0), at(10_000, 1.1)]).parts
    assert part.value == pytest.approx(1.1)


def test_nothing_is_divided_by_noise() -> None:
    [part] = share_of("x", row("aioascend", 1.0), row("pyacl", 1.15), row("floor", 1.0), 0.1)
    assert math.isinf(part.value)
    assert not part.holds
    assert "pyacl is within 0.2 us" in part.note


def test_what_was_not_measured_has_no_part() -> None:
    assert share_of("x", None, row("pyacl", 2.0), row("floor", 1.0), 0.1) == []
    assert not Goal("1", ()).holds


def test_finding_rows() -> None:
    rows = [row("pyacl", 2.0), row("pyacl", 3.0, "uvloop"), row("executor-4", 5.0)]
    assert find(rows, "pyacl", "uvloop", scenario="gather", placement="two") is rows[1]
    assert find(rows, "pyacl", "uvloop", placement="one") is None
    assert find(rows, "pyacl", "uvloop", scenario="chains") is None
    assert best([rows[2], None, rows[0]]) is rows[0]
    assert best([None]) is None


def test_goals_of_one_name_become_one() -> None:
    good, bad = Part("good", 1.0, 2.0), Part("bad", 60.0, 50.0)
    merged = merge([Goal("4 b", (good,)), Goal("1 a", (good,)), Goal("4 b", (bad,))])
    assert merged == [Goal("1 a", (good,)), Goal("4 b", (good, bad))]
    assert [goal.holds for goal in merged] == [True, False]
    assert merged[1].value == pytest.approx(1.2)
    assert Part("many", 60.0, 50.0, at_least=True).holds


def test_settings_with_few_rows_share_a_section() -> None:
    def at(contender: str, coroutines: int) -> Row:
        return dataclasses.replace(row(contender, 1.0), parameters={"coroutines": coroutines, "placement": "two"})

    few = [at("aioascend", 1), at("aioascend", 64), at("pyacl", 64)]
    [section] = sections(few)
    assert (section.title, section.unit, section.differing) == ("gather: placement two", "us/op", ("coroutines",))
    assert section.rows == few
    many = [at(name, count) for count in (1, 64) for name in ("floor", "aioascend", "pyacl")]
    titles = [section.title for section in sections(many)]
    assert titles == ["gather: coroutines 1, placement two", "gather: coroutines 64, placement two"]
    assert [section.title for section in sections([row("aioascend", 1.0)])] == ["gather: coroutines 64, placement two"]
    assert sections([]) == []


def test_measuring_interleaves() -> None:
    order: list[str] = []

    def case(name: str) -> Case:
        def run() -> Sample:
            order.append(name)
            return Sample(1, len(order), 0.0)

        return Case(name, "-", {}, run)

    said: list[str] = []
    settings = Settings(rounds=3, progress=said.append)
    measured = measure("gather", [case("a"), case("b"), case("c")], settings)
    assert [sorted(order[i : i + 3]) for i in (0, 3, 6)] == [["a", "b", "c"]] * 3
    assert len({tuple(order[i : i + 3]) for i in (0, 3, 6)}) > 1
    assert [(made.contender, len(samples)) for made, samples in measured] == [("a", 3), ("b", 3), ("c", 3)]
    assert len(said) == 9
    assert said[0].startswith("gather 1/3: ")


def test_a_stopwatch_stops_when_its_block_fails() -> None:
    with pytest.raises(ZeroDivisionError), stopwatch() as watch:  # noqa: PT012
        _ = sum(range(10_000))
        _ = 1 / 0
    assert watch.seconds > 0
    assert watch.sample(10, lag=1.5).figures == {"lag": 1.5}


@pytest.fixture
def affinity() -> Iterator[set[int]]:
    before = os.sched_getaffinity(0)
    yield before
    os.sched_setaffinity(0, before)


@pytest.mark.parametrize("name", ["two", "one"])
def test_threads_are_where_the_placement_says(name: str, affinity: set[int]) -> None:
    first, last = min(affinity), sorted(affinity)[:2][-1]  # the same on a machine with one core
    expected = {"two": ({first}, {last}, {first, last}), "one": ({first}, {first}, {first})}[name]
    ready, done = threading.Barrier(3), threading.Event()
    ids: list[int] = []

    def wait() -> None:
        ids.append(threading.get_native_id())
        ready.wait()
        done.wait()

    threads = [threading.Thread(target=wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    ready.wait()
    try:
        with Placement(name if len(affinity) > 1 else "one").pinned(ids[:1]):
            assert (os.sched_getaffinity(0), *map(os.sched_getaffinity, ids)) == expected
        assert [os.sched_getaffinity(thread) for thread in (0, *ids)] == [affinity] * 3
    finally:
        done.set()
        for thread in threads:
            thread.join()
