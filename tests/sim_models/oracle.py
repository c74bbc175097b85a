# SPDX-License-Identifier: Apache-2.0
"""What ONNX Runtime says a model's answer is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before the library is loaded

import numpy as np
import onnxruntime
from numpy.typing import NDArray

RTOL = ATOL = 1e-3


@lru_cache(maxsize=2)
def _session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def answers(path: Path, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
    return list(_session(path).run(None, dict(inputs)))


def assert_same(actual: NDArray[Any], expected: NDArray[Any]) -> None:
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, rtol=RTOL, atol=ATOL)


def floats(seed: int, *shape: int) -> NDArray[np.float32]:
    """Inputs that differ from run to run of a test only by `seed`."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
