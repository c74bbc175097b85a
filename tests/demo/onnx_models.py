# SPDX-License-Identifier: Apache-2.0
"""The pipeline's models without an NPU: ONNX Runtime in worker threads."""

from __future__ import annotations

import os
from pathlib import Path

import anyio.to_thread

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before the library is loaded

import onnxruntime

from aioascend.demo.detect import FloatArray
from aioascend.demo.files import ModelFiles, read_alphabet
from aioascend.demo.pipeline import Models


class OnnxModel:
    """`await model(x)`, one input and one output."""

    def __init__(self, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(path), options)
        self._input = self._session.get_inputs()[0].name

    def run(self, x: FloatArray) -> FloatArray:
        (output,) = self._session.run(None, {self._input: x})
        return output

    async def __call__(self, x: FloatArray) -> FloatArray:
        return await anyio.to_thread.run_sync(self.run, x)


def onnx_models(files: ModelFiles) -> Models:
    return Models(
        detect=OnnxModel(files.detect),
        classify=OnnxModel(files.classify),
        recognise=OnnxModel(files.recognise),
        alphabet=read_alphabet(files.alphabet),
    )
