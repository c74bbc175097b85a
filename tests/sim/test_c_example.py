# SPDX-License-Identifier: Apache-2.0
"""The C example builds with its own Makefile and prints the order that streams and callbacks guarantee."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from sim.conftest import ROOT

EXPECTED = """\
launching
  callback: NO_BLOCK on the first stream, after copying in and out, sees 1
  callback: BLOCK on the first stream, has refilled the source
  callback: BLOCK on the first stream, after copying again, sees 2
  callback: BLOCK on the second stream, after the event
synchronised
done
"""


@pytest.mark.parametrize("profile", ["instant", "inference-card"])
def test_callback_order(profile: str, c_environment: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "c"
    shutil.copytree(ROOT / "examples" / "c", folder, ignore=shutil.ignore_patterns("callback_order"))
    environment = {
        **c_environment,
        "ACL_INCLUDE_DIR": str(ROOT / "_native" / "abi" / "include"),
        "AIOASCEND_SIM_PROFILE": profile,
    }
    done = subprocess.run(
        ["make", "--silent", "-C", folder, "run"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout == EXPECTED
