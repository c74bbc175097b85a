# SPDX-License-Identifier: Apache-2.0
"""What kind of file is it? Many files, one model (Magika), and a batcher that lets them share its runs.

    python examples/filetypes.py [--loop asyncio|uvloop|trio]

A task a file: it reads the file, makes the tokens of it and awaits the batcher, as if it had the model for itself.
Requests that come while the device is busy leave together. The model is the one of the package magika
(`pip install --no-deps magika==1.0.3`), described here as ATC would compile it, for batches of 1 and 8.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import numpy as np
from numpy.typing import NDArray

import aioascend as aa
from _loops import package_file, run, together

FOLDER = "models/standard_v3_3"
BLOCK, HALF, NOTHING = 4096, 1024, 256  # bytes that are looked at on either end, tokens of each, the token for none


def tokens_of(content: bytes) -> NDArray[np.int32]:
    """int32 [2048]: the first and the last bytes of a file, without white space around."""
    first, last = content[:BLOCK].lstrip()[:HALF], content[-BLOCK:].rstrip()[-HALF:]
    tokens = np.full(2 * HALF, NOTHING, np.int32)
    tokens[: len(first)] = np.frombuffer(first, np.uint8)
    tokens[len(tokens) - len(last) :] = np.frombuffer(last, np.uint8)
    return tokens


def load_files() -> Iterator[tuple[str, bytes]]:
    """What each file is, and what is in it: of this Python, and some made here."""
    library = Path(sysconfig.get_path("stdlib"))
    programs = sorted(library.glob("*.py"), key=lambda path: path.stat().st_size)[-40:]
    sources = [path.read_bytes() for path in programs]
    yield from (("python", source) for source in sources)
    yield "elf", Path(sys.executable).resolve().read_bytes()
    yield "onnx", package_file("magika", f"{FOLDER}/model.onnx").read_bytes()
    for source in sources[:6]:
        yield "gzip", gzip.compress(source, mtime=0)
        yield "bzip", bz2.compress(source)
        yield "xz", lzma.compress(source)
        counts = Counter(source.decode("utf-8", "replace").split()).most_common(50)
        yield "json", json.dumps([{"word": word, "count": count} for word, count in counts], indent=2).encode()


async def main() -> bool:
    config = json.loads(package_file("magika", f"{FOLDER}/config.min.json").read_text(encoding="utf-8"))
    kinds = config["target_labels_space"]
    model_file = package_file("magika", f"{FOLDER}/model.onnx")
    description = f"onnx = {json.dumps(str(model_file))}\nshapes = {{ bytes = [-1, 2048] }}\ndynamic_batch = [1, 8]"
    files = await anyio.to_thread.run_sync(lambda: list(load_files()))

    async with aa.open_device(0) as npu:
        model = await npu.load_model(description.encode(), name="magika")
        async with aa.Batcher(model, max_delay=0.01) as batcher:

            async def name(file: tuple[str, bytes]) -> str:
                return str(kinds[int(np.argmax(await batcher(tokens_of(file[1]))))])

            said = await together(name, files)
            statistics = batcher.statistics()

    right = [expected == kind for (expected, _), kind in zip(files, said, strict=True)]
    print(", ".join(f"{count} {kind}" for kind, count in Counter(said).most_common()))
    print(f"{sum(right)} of {len(files)} files are what they should be")
    print(f"{statistics.rows} requests in {statistics.batches} runs, {statistics.padded_rows} rows of padding")
    return sum(right) >= 0.95 * len(files) and statistics.ok == len(files) and statistics.mean_batch > 2


if __name__ == "__main__":
    run(main, __doc__)
