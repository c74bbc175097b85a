# SPDX-License-Identifier: Apache-2.0
"""The snippets of docs/migrating.md that use aioascend, run; those that do not, can be parsed."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend as aa
from aioascend.testing import simulator

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "migrating.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
MODEL = """
inputs = [{ name = "image", shape = [-1, 4] }]
outputs = [{ name = "scores", shape = [-1, 10], fill = "sum" }]
dynamic_batch = [1, 8]
"""
STATIC = MODEL.replace("-1", "1").replace("dynamic_batch = [1, 8]\n", "")
IMAGE = np.arange(4, dtype=np.float32)[None]

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # what they are written with


@pytest.fixture(autouse=True)
def sim() -> None:
    simulator("sim").reset()


@pytest.fixture
def paths(tmp_path: Path) -> tuple[str, str]:
    """A model of one shape, and one of two gears."""
    for name, text in (("static", STATIC), ("gears", MODEL)):
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    return str(tmp_path / "static.om"), str(tmp_path / "gears.om")


@pytest.fixture
def snippets() -> dict[str, Any]:
    namespace: dict[str, Any] = {"aa": aa, "np": np, "asyncio": asyncio}
    for language, code in BLOCKS:
        if language == "python":
            exec(code, namespace)  # noqa: S102 - it is ours
    return namespace


def is_sum(scores: Any, image: Any = IMAGE) -> bool:
    return bool(scores.shape == (len(image), 10) and (scores == image.sum(axis=1, keepdims=True)).all())


def test_what_is_not_run_can_be_parsed() -> None:
    before = [code for language, code in BLOCKS if language == "py"]
    assert len(before) == 4
    for code in before:
        compile(code, "migrating.md", "exec")


def test_every_snippet_is_tried(snippets: dict[str, Any]) -> None:
    tried = set(re.findall(r'snippets\["(\w+)"\]', Path(__file__).read_text(encoding="utf-8")))
    assert tried == set(snippets) - {"aa", "np", "asyncio", "__builtins__"}


async def test_by_hand_and_gathered(snippets: dict[str, Any], paths: tuple[str, str]) -> None:
    async with aa.open_device(0, backend="sim") as npu, npu.create_stream() as stream:
        first, second = await npu.load_model(paths[0]), await npu.load_model(paths[0])
        assert is_sum(await snippets["infer"](npu, stream, first, IMAGE))
        assert all(map(is_sum, await snippets["both"](first, second, IMAGE)))


async def test_from_acllite(snippets: dict[str, Any], paths: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOASCEND_BACKEND", "sim")
    with anyio.fail_after(60):
        assert is_sum(await snippets["detect"](IMAGE, paths[0]))


async def test_from_ais_bench(snippets: dict[str, Any], paths: tuple[str, str]) -> None:
    batch = np.arange(32, dtype=np.float32).reshape(8, 4)
    images = [IMAGE + number for number in range(20)]
    async with aa.open_device(0, backend="sim") as npu, aa.open_device(1, backend="sim") as other:
        one, eight = await snippets["scores_of"](npu, paths[1], IMAGE, batch)
        assert is_sum(one)
        assert is_sum(eight, batch)
        answers = await snippets["over_all"]([npu, other], paths[0], images)
        assert all(map(is_sum, answers, images))


async def test_a_batcher(snippets: dict[str, Any], paths: tuple[str, str]) -> None:
    images = np.arange(80, dtype=np.float32).reshape(20, 4)
    async with aa.open_device(0, backend="sim") as npu, npu.load_model(paths[1]) as model:
        rows = await snippets["classify_all"](model, images)
        assert is_sum(np.stack(rows), images)
