# SPDX-License-Identifier: Apache-2.0
"""Reading many pages: a pipeline whose last stage fans out, one page into many lines of text.

    python examples/ocr_service.py [--loop asyncio|uvloop|trio] [--pages N]

examples/ocr.py reads a few pages, all at once. A service has more pages than fit into memory: here a pipeline takes the
next one when there is room, and works on several. While the lines of one page are read, text is looked for on the next
one, and the one after that is being prepared by a thread. The recogniser is loaded twice, so that it reads two lines at
the same time.

The models are those of `aioascend demo` (docs/demo.md), the pages are rendered from a text that is known.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import anyio.to_thread

import aioascend as aa
from _loops import run, together
from aioascend.demo import detect, files, lines
from aioascend.demo.pages import Page, PixelArray, characters_right, rendered_pages


@dataclass
class Work:
    """A page on its way through the stages."""

    page: Page
    prepared: detect.DetectorInput | None = None
    crops: list[PixelArray] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


@dataclass
class Reader:
    """The stages."""

    detector: aa.Model
    classifier: aa.Model
    recogniser: aa.Model
    alphabet: tuple[str, ...]

    def prepare(self, page: Page) -> Work:
        return Work(page, detect.detector_input(page.image))

    async def find(self, work: Work) -> Work:
        assert work.prepared is not None
        likely = await self.detector(work.prepared.tensor)
        work.crops = await anyio.to_thread.run_sync(cut_lines, work.page, likely, work.prepared.scale)
        return work

    async def read(self, work: Work) -> Work:
        """The fan-out: all lines of the page at once."""
        work.texts = [text for text in await together(self.read_line, work.crops) if text]
        return work

    async def read_line(self, line: PixelArray) -> str:
        if lines.is_upside_down(await self.classifier(lines.classifier_input(line))):
            line = lines.turned_around(line)
        text, score = lines.read_text(await self.recogniser(lines.recogniser_input(line)), self.alphabet)
        return text if score >= lines.SURE_OF_TEXT else ""


def cut_lines(page: Page, likely: detect.FloatArray, scale: float) -> list[PixelArray]:
    """The images of the lines; ordinary code, which takes a while."""
    return [lines.cut_out(page.image, box) for box in detect.find_boxes(likely, scale)]


async def inbox(count: int) -> AsyncIterator[Page]:
    """What there is to read, printed page by page; a service would take it from a queue or a socket."""
    printer = rendered_pages(count, seed=7)
    while (page := await anyio.to_thread.run_sync(next, printer, None)) is not None:
        yield page


async def main(pages: int) -> bool:
    paths = files.bundled_models()
    right = printed = 0
    async with aa.open_device(0) as npu:
        reader = Reader(
            await npu.load_model(paths.detect),
            await npu.load_model(paths.classify),
            await npu.load_model(paths.recognise, instances=2),
            files.read_alphabet(paths.alphabet),
        )
        async with aa.Pipeline(
            aa.Stage(reader.prepare, thread=True),
            aa.Stage(reader.find, concurrency=2),
            aa.Stage(reader.read, concurrency=2),
        ) as pipeline:
            async for work in pipeline.map(inbox(pages)):
                of_page = characters_right(work.page.truth or (), work.texts)
                print(f"{work.page.name}: {len(work.texts)} lines, {of_page[0]} of {of_page[1]} characters right")
                right, printed = right + of_page[0], printed + of_page[1]
            stages = pipeline.statistics().stages
    print(", ".join(f"{stage.name} {stage.busy_seconds:.1f} s" for stage in stages))
    return right > 0.97 * printed and stages[-1].done == pages


if __name__ == "__main__":
    run(main, __doc__, pages=6)
