# SPDX-License-Identifier: Apache-2.0
"""Files and bytes that are no model, or were one a moment ago."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioascend as aa
from hostile.scene import COPY, Scene

pytestmark = pytest.mark.anyio

ONNX_HEAD = b"\x08\x07\x12\x07pytorch"  # ir_version and producer_name of an ONNX file


def pipe(path: Path) -> None:
    os.mkfifo(path)


def sparse(size: int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(size)

    return make


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


FILES: dict[str, tuple[Callable[[Path], object], type[Exception], str]] = {
    "missing.onnx": (lambda path: None, FileNotFoundError, "no model file"),
    "missing.om": (lambda path: None, FileNotFoundError, "none with .onnx, .toml or .json beside it"),
    "loop.onnx": (link_to_itself, FileNotFoundError, "no model file"),
    "folder.onnx": (Path.mkdir, IsADirectoryError, "is a directory, not a model file"),
    "folder.om": (Path.mkdir, IsADirectoryError, "is a directory"),
    "pipe.onnx": (pipe, ValueError, "regular file"),
    "pipe.toml": (pipe, ValueError, "regular file"),
    "pipe.om": (pipe, ValueError, "regular file"),
    "empty.onnx": (Path.touch, aa.ModelError, "is empty"),
    "empty.toml": (Path.touch, aa.ModelError, "is empty"),
    "zeros.onnx": (sparse(4096), aa.ModelError, "neither ONNX nor a model description"),
    "huge.onnx": (sparse(1 << 40), aa.ModelError, "1099511627776 bytes.* 2 GiB"),
    "huge.toml": (sparse(1 << 40), aa.ModelError, "1099511627776 bytes.* 2 GiB"),
    "device.om": (lambda path: path.write_bytes(b"IMOD" + bytes(300)), aa.ModelError, "compiled for an NPU"),
    "cut.onnx": (lambda path: path.write_bytes(ONNX_HEAD[:-2]), aa.ModelError, "cut off after"),
    "noise.onnx": (lambda path: path.write_bytes(bytes(range(256)) * 4), aa.ModelError, "neither ONNX nor"),
    "cut.toml": (lambda path: path.write_bytes(COPY[:30]), aa.ModelError, "cut.toml:4"),
    "cut.json": (lambda path: path.write_text('{"inputs": ['), aa.ModelError, "cut.json:1"),
    "latin1.toml": (lambda path: path.write_bytes(b'name = "\xe9"\n' + COPY), aa.ModelError, "not UTF-8"),
    "deep.json": (lambda path: path.write_text("[" * 100_000), aa.ModelError, "deep.json"),
    "deep.toml": (lambda path: path.write_text("x = " + "[" * 100_000), aa.ModelError, "deep.toml"),
    "nothing.toml": (lambda path: path.write_text("name = 'x'"), aa.ModelError, "nothing.toml"),
}


@pytest.mark.parametrize("name", FILES)
async def test_what_is_no_model_file(scene: Scene, tmp_path: Path, name: str) -> None:
    make, error, message = FILES[name]
    path = tmp_path / name
    make(path)
    await scene.refuses(lambda: scene.npu.load_model(path), error, message)
    assert path.name in str(path)


async def test_files_of_the_system(scene: Scene) -> None:
    for path, error, message in (
        ("/dev/null", ValueError, "'/dev/null' is a pipe or a device"),
        ("/dev/zero", ValueError, "regular file"),
        ("/proc/self/mem", aa.ModelError, "/proc/self/mem: Input/output error"),
        ("/proc/self/maps", aa.ModelError, "/proc/self/maps"),
        ("", ValueError, "empty"),
        ("a\0b", FileNotFoundError, "no model file"),
        ("x" * 5000, OSError, "name too long"),
    ):
        await scene.refuses(lambda path=path: scene.npu.load_model(path), error, message)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (b"", ValueError, "'from bytes' is empty"),
        (bytearray(), ValueError, "is empty"),
        (memoryview(b""), ValueError, "is empty"),
        (bytes(100), aa.ModelError, "neither ONNX nor a model description"),
        (b"\xff" * 100, aa.ModelError, "UTF-8"),
        (ONNX_HEAD[:-2], aa.ModelError, "cut off after"),
        (bytearray(COPY[:30]), aa.ModelError, "model in memory:4"),
        (memoryview(COPY * 2)[::2], ValueError, "contiguous"),
        (COPY.decode(), FileNotFoundError, "no model file"),
        (np.frombuffer(COPY, "uint8"), TypeError, "not from ndarray"),
        (7, TypeError, "not from int"),
        (None, TypeError, "not from NoneType"),
        ([COPY], TypeError, "not from list"),
    ],
    ids=lambda value: str(value)[:12],
)
async def test_what_are_no_bytes_of_a_model(scene: Scene, model: Any, error: type[Exception], message: str) -> None:
    await scene.refuses(lambda: scene.npu.load_model(model), error, message)


@pytest.mark.parametrize("name", [5, b"x", True, ["x"]], ids=repr)
async def test_what_is_no_name(scene: Scene, name: Any) -> None:
    await scene.refuses(lambda: scene.npu.load_model(COPY, name=name), TypeError, "name must be text, not ")


async def test_names_of_files_may_be_any_bytes(scene: Scene, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff\xfe.toml")
    path.write_bytes(COPY)
    x = np.ones((2, 8), "float32")
    async with await scene.npu.load_model(path) as model:
        assert (await model(x) == x).all()


@pytest.mark.parametrize(
    ("given", "instead", "error", "message"),
    [
        ("[2, 8]", "[9223372036854775807, 9223372036854775807]", aa.ModelError, "larger than memory can be"),
        ("[2, 8]", "[2305843009213693952]", aa.ModelError, "larger than memory can be"),
        ("[2, 8]", "[0]", aa.ModelError, "a dimension is positive"),
        ("[2, 8]", "[-2]", aa.ModelError, "a dimension is positive"),
        ("[2, 8]", "[2.5]", aa.ModelError, "a list of integers"),
        ("[2, 8]", "[true]", aa.ModelError, "a list of integers"),
        ("[2, 8]", "[" + "1, " * 200 + "]", aa.ModelError, "200 dimensions; at most 128"),
        ('"copy"', '"copied"', aa.ModelError, "unknown rule 'copied'"),
        ('"y"', '""', aa.ModelError, "needs a name"),
    ],
)
async def test_descriptions_of_impossible_models(
    scene: Scene, given: str, instead: str, error: type[Exception], message: str
) -> None:
    text = COPY.decode().replace(given, instead)
    await scene.refuses(lambda: scene.npu.load_model(text.encode()), error, message)


async def test_gears_that_no_memory_holds(scene: Scene) -> None:
    text = "dynamic_batch = [1, 9223372036854775807]\n" + COPY.decode().replace("[2, 8]", "[-1, 8]")
    await scene.refuses(lambda: scene.npu.load_model(text.encode()), aa.ModelError, "larger than memory can be")


async def test_a_file_that_changes_while_it_is_loaded(scene: Scene, tmp_path: Path) -> None:
    """Each load gets one of its states as a whole, or says what is wrong with it."""
    path, x = tmp_path / "model.toml", np.ones((2, 8), "float32")
    states = [COPY, COPY.replace(b'"copy"', b'"zeros"'), b"", COPY[:30], None]
    path.write_bytes(COPY)
    loaded = 0

    async def change() -> None:
        for round_ in range(40):
            content = states[round_ % len(states)]
            if content is None:
                path.unlink()
            else:
                (tmp_path / "next").write_bytes(content)
                (tmp_path / "next").replace(path)
            await asyncio.sleep(0)

    async def load() -> None:
        nonlocal loaded
        for _ in range(20):
            [model] = await asyncio.gather(scene.npu.load_model(path), return_exceptions=True)
            if isinstance(model, (FileNotFoundError, aa.ModelError)):
                assert "model.toml" in str(model)
                continue
            assert isinstance(model, aa.Model), model
            async with model:
                result = await model(x)
                assert (result == x).all() or not result.any()
                loaded += 1

    await asyncio.gather(change(), load(), load(), load())
    path.write_bytes(COPY)
    await (await scene.npu.load_model(path)).close()
    assert loaded


async def test_a_model_lives_without_its_file(scene: Scene, tmp_path: Path) -> None:
    path, x = tmp_path / "model.toml", np.ones((2, 8), "float32")
    path.write_bytes(COPY)
    async with await scene.npu.load_model(path) as model:
        path.write_bytes(b"garbage")
        assert (await model(x) == x).all()
        path.unlink()
        assert (await model(x) == x).all()
