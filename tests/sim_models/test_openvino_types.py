# SPDX-License-Identifier: Apache-2.0
"""The simulator's own declarations of OpenVINO's C API agree with the headers of the installed one."""

from __future__ import annotations

import subprocess
from pathlib import Path

from sim_models.simulator import package_file


def test_declarations_match_the_headers(native: Path) -> None:
    done = subprocess.run(
        [
            "c++", "-std=c++17", "-fsyntax-only", "-I", native / "sim", "-I", native / "abi" / "include",
            "-isystem", package_file("openvino", "include"), Path(__file__).with_name("openvino_types.cpp"),
        ],
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
