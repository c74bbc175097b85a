# SPDX-License-Identifier: Apache-2.0
"""The pipeline with the real models: what it reads, against the truth and RapidOCR on the same pages."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import anyio
import numpy as np
import pytest
from rapidfuzz.distance import Levenshtein
from rapidocr_onnxruntime import RapidOCR

from aioascend.demo import lines
from aioascend.demo.detect import FloatArray
from aioascend.demo.pages import Page, PixelArray, characters_right
from aioascend.demo.pipeline import Line, Models, one_by_one, read_line, read_page, read_pages, together

pytestmark = pytest.mark.anyio

# What is printed on the photographed page.
PHOTOGRAPH = (
    "Region-based segmentation",
    "Let us first determine markers of the coins and the",
    "background. These markers are pixels that we can label",
    "unambiguously as either object or background. Here,",
    "the markers are found at the two extreme parts of the",
    "histogram of grey values:",
    ">>> markers = np.zeros_like(coins)",
)


def texts(found: Sequence[Line]) -> list[str]:
    return [line.text for line in found]


def similarity(a: str, b: str) -> float:
    return Levenshtein.normalized_similarity(a, b)


@pytest.fixture(scope="module")
def oracle_texts(pages: list[Page]) -> list[list[str]]:
    oracle = RapidOCR(intra_op_num_threads=1)  # more spin, and lose against whatever else runs here
    return [[text for _, text, _ in oracle(page.image)[0]] for page in pages]


async def test_photograph(pages: list[Page], models: Models) -> None:
    found = texts(await read_page(pages[0], models))
    assert len(found) == len(PHOTOGRAPH)
    for text, printed in zip(found[:-1], PHOTOGRAPH[:-1], strict=True):
        assert similarity(text, printed) >= 0.97
    assert similarity(found[-1], PHOTOGRAPH[-1]) > 0.9  # the lone "=" gets lost


async def test_photograph_agrees_with_the_oracle(
    pages: list[Page], models: Models, oracle_texts: list[list[str]]
) -> None:
    """RapidOCR rates a curved line by its mostly empty box, and so misses two lines of the seven."""
    found = texts(await read_page(pages[0], models))
    common = [text for text in found if max(similarity(text, other) for other in oracle_texts[0]) >= 0.97]
    assert len(common) == len(oracle_texts[0]) == 5
    for ours, theirs in zip(common, oracle_texts[0], strict=True):
        assert similarity(ours, theirs) >= 0.97


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # long, and about what is read
async def test_rendered_pages_are_read_right_and_as_the_oracle_reads_them(
    pages: list[Page], models: Models, oracle_texts: list[list[str]]
) -> None:
    right = total = theirs_right = 0
    read = await read_pages(pages[1:], models)
    for page, found, theirs in zip(pages[1:], read, oracle_texts[1:], strict=True):
        assert page.truth is not None
        assert len(found) == len(page.truth) == len(theirs)
        page_right, page_total = characters_right(page.truth, texts(found))
        right, total = right + page_right, total + page_total
        theirs_right += characters_right(page.truth, theirs)[0]
        for ours, other in zip(texts(found), theirs, strict=True):
            assert similarity(ours.replace(" ", ""), other.replace(" ", "")) >= 0.97
    assert right / total >= 0.98
    assert right >= theirs_right - 0.005 * total


async def test_one_by_one_reads_the_same_as_together(pages: list[Page], models: Models) -> None:
    some = pages[:2]
    at_once = await read_pages(some, models, together)
    in_turn = await read_pages(some, models, one_by_one)
    assert [texts(found) for found in at_once] == [texts(found) for found in in_turn]
    for ours, other in zip(at_once, in_turn, strict=True):
        np.testing.assert_array_equal([line.box for line in ours], [line.box for line in other])


async def test_lines_of_a_page_are_in_the_models_together_and_in_turn_one_at_a_time(
    pages: list[Page], models: Models
) -> None:
    page = pages[1]
    assert page.truth is not None
    gate = Gate(models, wait_for=len(page.truth))
    await read_page(page, gate.models, together)
    assert gate.most == len(page.truth)

    gate = Gate(models, wait_for=1)
    await read_page(page, gate.models, one_by_one)
    assert gate.most == 1


class Gate:
    """The models, with a classifier that lets nobody pass until `wait_for` lines are inside."""

    def __init__(self, models: Models, wait_for: int) -> None:
        self.models = dataclasses.replace(models, classify=self._classify)
        self.most = 0
        self._inside = 0
        self._wait_for = wait_for
        self._full = anyio.Event()
        self._model = models.classify

    async def _classify(self, x: FloatArray) -> FloatArray:
        self._inside += 1
        self.most = max(self.most, self._inside)
        if self._inside >= self._wait_for:
            self._full.set()
        await self._full.wait()
        try:
            return await self._model(x)
        finally:
            self._inside -= 1


async def test_a_watcher_hears_of_every_line(pages: list[Page], models: Models) -> None:
    heard: list[tuple[str, object]] = []

    class Watcher:
        def found(self, page: Page, count: int) -> None:
            heard.append((page.name, count))

        def read(self, page: Page, line: Line) -> None:
            heard.append((page.name, line.text))

    (found,) = await read_pages(pages[:1], models, together, Watcher())
    assert heard[0] == ("photograph", len(heard) - 1)
    assert sorted(text for _, text in heard[1:] if text) == sorted(texts(found))


async def test_a_line_upside_down_is_turned(pages: list[Page], models: Models) -> None:
    line = first_line(pages[1])
    text, score = await read_line(line, models)
    turned = await read_line(lines.turned_around(line), models)
    assert similarity(text, (pages[1].truth or ("",))[0]) >= 0.95
    assert score > 0.9
    assert similarity(turned[0], text) >= 0.95


def first_line(page: Page) -> PixelArray:
    return np.ascontiguousarray(page.image[45:105, 40:660])


async def test_noise_is_no_text(models: Models) -> None:
    noise = np.random.default_rng(2).integers(0, 256, (48, 400, 3), np.uint8)
    assert await read_line(noise, models) == ("", 0.0)


async def test_an_empty_page_has_no_lines(models: Models) -> None:
    blank = Page("blank", np.full((640, 640, 3), 250, np.uint8))
    assert await read_pages([blank], models) == [[]]
    assert await read_pages([], models) == []


@pytest.mark.parametrize("compose", [together, one_by_one])
async def test_results_come_in_the_order_of_the_items(compose: object) -> None:
    events = [anyio.Event() for _ in range(4)]
    events[3].set()

    async def work(index: int) -> int:
        if compose is together:  # finish in the opposite order
            await events[index].wait()
            if index:
                events[index - 1].set()
        return index * 10

    assert await compose(work, range(4)) == [0, 10, 20, 30]  # type: ignore[operator]


async def test_if_one_item_fails_the_others_are_cancelled() -> None:
    cancelled = []

    async def work(index: int) -> None:
        if index == 2:
            raise ValueError("this one")
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.append(index)
            raise

    with pytest.raises(BaseException) as caught:  # noqa: PT011 - builtin ExceptionGroup is new in 3.11
        await together(work, range(4))
    assert isinstance(caught.value.exceptions[0], ValueError)  # type: ignore[attr-defined]
    assert sorted(cancelled) == [0, 1, 3]
