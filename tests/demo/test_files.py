# SPDX-License-Identifier: Apache-2.0
"""Finding the models, and the alphabet inside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from aioascend.demo.files import bundled_models, models_in, package_file, read_alphabet


def test_the_bundled_models_and_their_alphabet_are_found_without_importing_the_package() -> None:
    files = bundled_models()
    assert all(path.suffix == ".onnx" and path.is_file() for path in vars(files).values())
    alphabet = read_alphabet(files.alphabet)
    assert len(alphabet) == 6625
    assert alphabet[0] == ""
    assert alphabet[-1] == " "
    assert {"a", "Z", "0", "é"} <= set(alphabet)


def test_what_is_not_installed_is_named_with_the_remedy() -> None:
    with pytest.raises(FileNotFoundError, match=r'a\.ttf of the package no_such_font: pip install "aioascend\[demo\]"'):
        package_file("no_such_font", "a.ttf")
    with pytest.raises(FileNotFoundError, match="pip install --no-deps rapidocr-onnxruntime"):
        package_file("rapidocr_onnxruntime", "models/none.onnx")


def test_models_of_a_folder_compiled_ones_first(tmp_path: Path) -> None:
    for name in ("det.om", "det.onnx", "cls.onnx", "rec.om"):
        (tmp_path / name).touch()
    files = models_in(tmp_path)
    assert [path.name for path in (files.detect, files.classify, files.recognise)] == [
        "det.om",
        "cls.onnx",
        "rec.om",
    ]
    assert files.alphabet == bundled_models().alphabet

    (tmp_path / "characters.txt").write_text("ä\n\u2028\n漢\n", encoding="utf-8")
    assert read_alphabet(models_in(tmp_path).alphabet) == ("", "ä", "\u2028", "漢", " ")


def test_a_folder_without_a_model_says_which_is_missing(tmp_path: Path) -> None:
    (tmp_path / "det.om").touch()
    with pytest.raises(FileNotFoundError, match=r"no cls\.om and no cls\.onnx in .*needs det\.om, cls\.om, rec\.om"):
        models_in(tmp_path)


def test_a_model_without_an_alphabet() -> None:
    with pytest.raises(ValueError, match=r"det_infer\.onnx lists no characters in its metadata: put characters\.txt"):
        read_alphabet(bundled_models().detect)
