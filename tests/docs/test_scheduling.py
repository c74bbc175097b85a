# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/scheduling.md, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import numpy as np
import pytest

import aioascend as aa
from aioascend.testing import simulator

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scheduling.md"
MODEL = '[[inputs]]\nname = "x"\nshape = [4]\n[[outputs]]\nname = "y"\nshape = [4]\nfill = "copy"\n'


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What each block defines; a block that does not stand by itself defines nothing."""
    monkeypatch.setenv("AIOASCEND_BACKEND", "sim")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "detect.toml").write_text(MODEL, encoding="utf-8")
    simulator("sim").reset()
    found = []
    for code in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        names: dict[str, Any] = {"aa": aa, "anyio": anyio, "load": lambda path: np.full(4, len(path), "float32")}
        if not code.startswith("async with"):
            exec(code, names)  # noqa: S102 - it is ours
        found.append(names)
    return found


def the_one_with(programs: list[dict[str, Any]], *names: str) -> dict[str, Any]:
    (found,) = [program for program in programs if set(names) <= program.keys()]
    return found


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_model_on_two_devices(
    programs: list[dict[str, Any]], backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main = the_one_with(programs, "main", "detect")["main"]
    anyio.run(main, ["a", "bb", "ccc"], backend=backend)
    assert sorted(capsys.readouterr().out.splitlines()) == ["a [1. 1. 1. 1.]", "bb [2. 2. 2. 2.]", "ccc [3. 3. 3. 3.]"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_requests_in_results_out(
    programs: list[dict[str, Any]], backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main = the_one_with(programs, "main", "consume")["main"]
    anyio.run(main, [np.full(4, value, "float32") for value in range(100)], backend=backend)
    assert len(capsys.readouterr().out.splitlines()) == 100


def test_a_policy_and_the_rate_between_two_snapshots(programs: list[dict[str, Any]]) -> None:
    policy = the_one_with(programs, "prefer_the_first")["prefer_the_first"]
    busy_rate = the_one_with(programs, "busy_rate")["busy_rate"]

    async def unit(value: int) -> int:
        await anyio.lowlevel.checkpoint()
        return value

    async def main() -> None:
        async with aa.Scheduler([unit, unit], policy=policy) as scheduler:
            before = scheduler.statistics()
            for value in range(3):
                assert await scheduler(value) == value
            after = scheduler.statistics()
        assert [one.ok for one in after.units] == [3, 0]
        rates = busy_rate(before, after, 1)
        assert rates[0] > rates[1] == 0

    anyio.run(main)


def test_threads_and_scripts(programs: list[dict[str, Any]]) -> None:
    in_a_thread = the_one_with(programs, "in_a_thread")["in_a_thread"]
    image = np.full(4, 7, "float32")

    async def main() -> None:
        async with aa.open_device(0) as npu, npu.load_model("detect.om") as detect, aa.InferQueue(detect) as queue:
            assert (await anyio.to_thread.run_sync(in_a_thread, queue, image) == 7).all()

    anyio.run(main)
    assert (the_one_with(programs, "script")["script"](image) == 7).all()
