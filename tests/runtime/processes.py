# SPDX-License-Identifier: Apache-2.0
"""Programs in processes of their own, which must end as expected and say nothing."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

PROLOGUE = """
import asyncio, gc, os, signal, sys, threading
import numpy as np
import aioascend as aa
from aioascend.testing import simulator
sim = simulator("sim")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job may have inherited that it is ignored
"""

LOOPS = {
    "asyncio": "run = asyncio.run",
    "uvloop": "import uvloop; run = uvloop.run",
    "trio": "import trio; run = trio.run",
}

# For a program, given as `before`.
MODEL = r"""
MODEL = b'[[inputs]]\nname = "x"\nshape = [4]\n[[outputs]]\nname = "y"\nshape = [4]\nfill = "copy"\n'
"""


def run_python(
    code: str, *, before: str = "", loop: str = "asyncio", returncode: int = 0, stdout: str = "", stderr: str = ""
) -> None:
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    script = "\n".join([PROLOGUE, LOOPS[loop], before, textwrap.dedent(code)])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "faulthandler", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == stderr, done.stderr
    assert done.stdout == stdout, done.stdout
    assert done.returncode == returncode
