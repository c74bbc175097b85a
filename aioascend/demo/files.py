# SPDX-License-Identifier: Apache-2.0
"""The demo's models, fonts and photograph: files inside installed packages, found without importing those."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

MODEL_PACKAGE = "rapidocr_onnxruntime"
STAGES = ("det", "cls", "rec")
INSTALL = {
    # With its dependencies it would bring the desktop build of OpenCV, which needs libGL.
    MODEL_PACKAGE: "pip install --no-deps rapidocr-onnxruntime==1.4.4",
}
INSTALL_REST = 'pip install "aioascend[demo]"'


@dataclass(frozen=True)
class ModelFiles:
    """The three models of the pipeline and the file that lists the recogniser's characters."""

    detect: Path
    classify: Path
    recognise: Path
    alphabet: Path


def package_file(package: str, relative: str) -> Path:
    """The path of a file inside an installed package; `FileNotFoundError` says what to install."""
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder, relative)
        if path.is_file():
            return path
    remedy = INSTALL.get(package, INSTALL_REST)
    raise FileNotFoundError(f"the demo needs {relative} of the package {package}: {remedy}")


def bundled_models() -> ModelFiles:
    """The PP-OCRv4 models that the package rapidocr-onnxruntime brings, as ONNX."""
    recognise = package_file(MODEL_PACKAGE, "models/ch_PP-OCRv4_rec_infer.onnx")
    return ModelFiles(
        detect=package_file(MODEL_PACKAGE, "models/ch_PP-OCRv4_det_infer.onnx"),
        classify=package_file(MODEL_PACKAGE, "models/ch_ppocr_mobile_v2.0_cls_infer.onnx"),
        recognise=recognise,
        alphabet=recognise,
    )


def models_in(folder: Path) -> ModelFiles:
    """`det`, `cls` and `rec` in `folder`, each as `.om` or else `.onnx`.

    The alphabet is `characters.txt` there (one character a line), else that of the bundled recogniser.
    """
    detect, classify, recognise = (_model_in(folder, stage) for stage in STAGES)
    characters = folder / "characters.txt"
    alphabet = characters if characters.is_file() else bundled_models().alphabet
    return ModelFiles(detect, classify, recognise, alphabet)


def _model_in(folder: Path, stage: str) -> Path:
    for path in (folder / f"{stage}.om", folder / f"{stage}.onnx"):
        if path.is_file():
            return path
    wanted = ", ".join(f"{each}.om" for each in STAGES)
    raise FileNotFoundError(f"no {stage}.om and no {stage}.onnx in {folder}: the demo needs {wanted} there")


def read_alphabet(path: Path) -> tuple[str, ...]:
    """The recogniser's classes in order: the blank (an empty string), the characters, the space.

    `path` is a text file with one character a line, or an ONNX file that carries the list in its metadata.
    """
    if path.suffix == ".onnx":
        import onnx  # nothing else of the demo parses models, and with a text file nothing needs it

        metadata = {entry.key: entry.value for entry in onnx.load(str(path)).metadata_props}
        if "character" not in metadata:
            raise ValueError(f"{path} lists no characters in its metadata: put characters.txt beside it")
        listed = metadata["character"]
    else:
        listed = path.read_text(encoding="utf-8")
    # Not splitlines(): it also breaks at characters that the alphabet may contain.
    return ("", *listed.rstrip("\n").split("\n"), " ")
