# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/pipelines.md, as they stand there."""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
import stamina

import aioascend as aa
from aioascend.testing import Simulator, simulator

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pipelines.md"
CLASSES = 1000

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def sim() -> Iterator[Simulator]:
    sim = simulator("sim")
    sim.reset()
    yield sim
    sim.reset()


def program(phrase: str) -> str:
    """The one that has this in it."""
    programs = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    [found] = [text for text in programs if phrase in text]
    return str(found)


async def run(text: str, **names: Any) -> dict[str, Any]:
    """Runs it as the interactive interpreter of asyncio would; what it leaves in its namespace."""
    names = {"aa": aa, "anyio": anyio, "contextlib": contextlib, "stamina": stamina, **names}
    made = eval(compile(text, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)  # noqa: S307
    if inspect.iscoroutine(made):
        await made
    return names


async def same(item: Any) -> Any:
    return item


async def test_files_are_labelled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / f"{number}.raw" for number in range(5)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number, 9]))

    async def classify(image: list[int]) -> Any:
        return np.eye(5)[image[0]]

    await run(program("async def label"), paths=paths, decode=list, classify=classify, names="abcde")
    assert capsys.readouterr().out.split() == list("abcde")


async def test_copies_and_runs_are_stages() -> None:
    model = f'[[inputs]]\nname = "x"\nshape = [4]\n[[outputs]]\nname = "y"\nshape = [{CLASSES}]\nfill = "sum"\n'
    found: list[Any] = []
    text = program("async def copy_in").replace("        ...", "        found.append(scores)")
    async with aa.open_device(0, backend="sim") as npu, npu.load_model(model.encode()) as loaded:
        images = [np.full(4, number, "float32") for number in range(6)]
        await run(text, npu=npu, model=loaded, images=images, found=found)
    assert [(float(scores[0]), len(scores)) for scores in found] == [(4.0 * n, CLASSES) for n in range(6)]


async def test_who_has_found_what_is_good_takes_no_more() -> None:
    async with aa.Pipeline(same) as pipeline:
        left = await run(program("aclosing"), pipeline=pipeline, images=range(1000), good=lambda number: number == 3)
        assert left["result"] == 3
        assert pipeline.statistics().submitted < 50


async def test_a_detector_is_asked_again() -> None:
    asked: list[int] = []

    async def detector(image: int) -> int:
        asked.append(image)
        if len(asked) < 3:
            raise aa.errors.error_from_code(207001)
        return image

    stamina.set_testing(True, attempts=3)
    try:
        detect = (await run(program("stamina.retry"), detector=detector))["detect"]
        assert await detect(7) == 7
    finally:
        stamina.set_testing(False)
    assert asked == [7, 7, 7]


def crop(image: str, box: int) -> str:
    return image[box]


async def boxes(image: str) -> range:
    return range(len(image))


async def upper(text: str) -> str:
    return text.upper()


async def test_lines_of_a_page_are_gathered(capsys: pytest.CaptureFixture[str]) -> None:
    names = {"resize": same, "recognize": upper, "detect": boxes, "decode": same, "crop": crop}
    await run(program("async def page_text"), images=["ab", "cde"], **names)
    assert capsys.readouterr().out.split() == list("ABCDE")


async def test_lines_of_all_pages_follow_each_other() -> None:
    async def detect(image: str) -> tuple[str, range]:
        return image, range(len(image))

    found: list[str] = []
    text = program("def boxes_of").replace("    ...", "    found.append(text)")
    async with aa.Pipeline(detect) as detector, aa.Pipeline(upper) as lines:
        await run(text, detector=detector, lines=lines, images=["ab", "cde"], crop=crop, found=found)
    assert found == list("ABCDE")
