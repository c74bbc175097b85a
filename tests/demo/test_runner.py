# SPDX-License-Identifier: Apache-2.0
"""The demo as a whole on the simulator, and how copies of a model are shared."""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
from pathlib import Path

import anyio
import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from aioascend.demo import add_arguments, main
from aioascend.demo.detect import FloatArray
from aioascend.demo.files import STAGES, bundled_models, package_file
from aioascend.demo.pages import Page, characters_right
from aioascend.demo.runner import Copies, run

pytestmark = pytest.mark.anyio


class Counting:
    """A model whose runs last until they may leave."""

    name = "counting.om"

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.arrived = anyio.Event()
        self.leave = anyio.Event()

    async def __call__(self, x: FloatArray) -> FloatArray | tuple[FloatArray, ...]:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.arrived.set()
        try:
            await self.leave.wait()
        finally:
            self.inside -= 1
        if x.size == 0:
            raise ValueError("empty")
        return x if x.size == 1 else (x, x)


async def test_copies_run_side_by_side_and_each_runs_once_at_a_time() -> None:
    models = [Counting(), Counting()]
    copies = Copies(models)
    results: list[FloatArray] = []

    async def use(index: int) -> None:
        results.append(await copies(np.full(1, index, np.float32)))

    async with anyio.create_task_group() as group:
        for index in range(5):
            group.start_soon(use, index)
        for model in models:
            await model.arrived.wait()
        await anyio.wait_all_tasks_blocked()
        assert [model.inside for model in models] == [1, 1]
        for model in models:
            model.leave.set()
    assert sorted(int(result[0]) for result in results) == [0, 1, 2, 3, 4]
    assert [model.most for model in models] == [1, 1]


async def test_a_copy_comes_back_after_an_error_and_after_a_cancellation() -> None:
    model = Counting()
    copies = Copies([model])
    with anyio.move_on_after(0):
        await copies(np.ones(1, np.float32))
    model.leave.set()
    with pytest.raises(ValueError, match="empty"):
        await copies(np.empty(0, np.float32))
    assert (await copies(np.ones(1, np.float32))).tolist() == [1.0]
    assert model.inside == 0


async def test_a_model_with_several_outputs_is_refused() -> None:
    model = Counting()
    model.leave.set()
    with pytest.raises(ValueError, match=r"counting\.om has 2 outputs, the demo needs models that have one"):
        await Copies([model])(np.ones(2, np.float32))


async def test_a_page_on_the_simulator(tmp_path: Path, pages: list[Page]) -> None:
    image = tmp_path / "printed.png"
    Image.fromarray(pages[1].image).save(image)
    screen = Console(file=io.StringIO(), width=120, color_system=None)

    summary = await run([image], console=screen)

    texts = [line.text for line in summary.lines[0]]
    assert pages[1].truth is not None
    right, total = characters_right(pages[1].truth, texts)
    assert right >= 0.98 * total
    assert summary.accuracy is None
    assert summary.sequential_seconds is not None
    assert "simulated" in summary.device
    assert summary.overlap is not None
    assert set(summary.overlap.busy) == {"ai_core", "copy_in", "copy_out"}
    assert summary.overlap.shared > 0
    assert isinstance(screen.file, io.StringIO)
    for text in texts:
        assert text in screen.file.getvalue()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_models_of_a_folder_compiled_for_an_npu(tmp_path: Path) -> None:
    """The simulator takes `det.onnx` for `det.om`; the demo need not know."""
    bundled = bundled_models()
    for stage, path in zip(STAGES, (bundled.detect, bundled.classify, bundled.recognise), strict=True):
        (tmp_path / f"{stage}.om").write_bytes(b"compiled")
        (tmp_path / f"{stage}.onnx").symlink_to(path)

    photograph = package_file("skimage", "data/page.png")
    summary = await run([photograph], tmp_path, sequential=False, console=Console(file=io.StringIO()))

    assert summary.lines[0][0].text == "Region-based segmentation"
    assert len(summary.lines[0]) == 7
    assert summary.sequential_seconds is None


def test_the_command_reads_all_pages() -> None:
    """`aioascend demo` as a user starts it; all eleven pages."""
    done = subprocess.run(
        [sys.executable, "-m", "aioascend", "demo", "--loop", "uvloop", "--no-sequential"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "lines on 11 pages" in done.stdout
    assert "photograph  Region-based segmentation" in done.stdout
    share = float(done.stdout.split(" characters on the rendered pages (")[1].split(" %")[0])
    assert share >= 98.0
    assert "one by one" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.png"], "no such image: missing.png"),
        (
            ["--models", "nowhere"],
            "no det.om and no det.onnx in nowhere: the demo needs det.om, cls.om, rec.om there",
        ),
    ],
)
def test_bad_arguments_end_with_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert main(parser.parse_args(arguments)) == 2
    assert capsys.readouterr().err == f"aioascend demo: {message}\n"
