# SPDX-License-Identifier: Apache-2.0
"""The simulator exports the C ABI and its own control functions, and nothing else."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import aioascend

LIBRARY = Path(aioascend.__file__).parent / "sim" / "libascendcl.so"


def exported(library: Path) -> set[str]:
    done = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--format=posix", str(library)],
        capture_output=True,
        text=True,
        check=True,
    )
    return {line.split()[0] for line in done.stdout.splitlines()}


def test_the_simulator_exports_exactly_the_abi_and_its_controls(abi: dict[str, Any], abi_folder: Path) -> None:
    header = (abi_folder.parent / "sim" / "include" / "aclsim.h").read_text(encoding="utf-8")
    controls = set(re.findall(r"\b(aclsim[A-Z]\w*)\s*\(", header))
    assert controls
    assert exported(LIBRARY) == abi["functions"].keys() | controls
