# SPDX-License-Identifier: Apache-2.0
"""Read the text on page images with three models on an NPU, or on the bundled simulator: the tutorial.

    python examples/ocr.py [IMAGE...]

A page takes three steps. The detector finds the lines of text; it runs once a page. Then, for each line, the
classifier tells whether it is upside down, and the recogniser reads it. Nothing orders the lines among each
other, so all of them are awaited at once, and the runtime spreads them over its streams. There is no thread
to start, no callback to nest, no queue to fill: `await model(x)` takes a numpy array and returns one.

`aioascend demo` does the same for pages whose text is known, and compares it with one line after the other.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import aioascend as aa
from aioascend.demo import detect, files, lines, pages


class Reader:
    """The three models, loaded."""

    def __init__(self, detector: aa.Model, classifier: aa.Model, recogniser: aa.Model, alphabet: tuple[str, ...]):
        self.detector = detector
        self.classifier = classifier
        self.recogniser = recogniser
        self.alphabet = alphabet

    @classmethod
    async def load(cls, npu: aa.Device, paths: files.ModelFiles) -> Reader:
        """Loading blocks for a while; it happens off the loop, so the three load side by side."""
        models = await asyncio.gather(
            npu.load_model(paths.detect), npu.load_model(paths.classify), npu.load_model(paths.recognise)
        )
        return cls(*models, files.read_alphabet(paths.alphabet))

    async def read_page(self, image: pages.PixelArray) -> list[str]:
        """The lines of one page, from top to bottom."""
        # What computes on the host for longer than a few milliseconds would stall the loop: a thread does it.
        prepared = await asyncio.to_thread(detect.detector_input, image)
        likely = await self.detector(prepared.tensor)  # how likely each pixel is text: one run on the NPU
        boxes = await asyncio.to_thread(detect.find_boxes, likely, prepared.scale)

        # The heart of it: one coroutine a line, all at once.
        texts = await asyncio.gather(*(self.read_line(lines.cut_out(image, box)) for box in boxes))
        return [text for text in texts if text]

    async def read_line(self, line: pages.PixelArray) -> str:
        """One line: the second model gets what the first one says, written as it reads."""
        if lines.is_upside_down(await self.classifier(lines.classifier_input(line))):
            line = lines.turned_around(line)
        text, score = lines.read_text(await self.recogniser(lines.recogniser_input(line)), self.alphabet)
        return text if score >= lines.SURE_OF_TEXT else ""


async def main(paths: list[Path]) -> None:
    wanted = [pages.read_page(path) for path in paths] or [pages.photographed_page()]
    async with aa.open_device(0) as npu:  # CANN where there is an NPU, the simulator elsewhere
        reader = await Reader.load(npu, files.bundled_models())

        # Pages are coroutines as well: the detector sees the next page while the lines of this one are read.
        read = await asyncio.gather(*(reader.read_page(page.image) for page in wanted))
        for page, texts in zip(wanted, read, strict=True):
            print(f"--- {page.name}")
            print("\n".join(texts))


if __name__ == "__main__":
    asyncio.run(main([Path(argument) for argument in sys.argv[1:]]))
