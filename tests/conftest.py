# SPDX-License-Identifier: Apache-2.0
"""What all tests share."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import aioascend


@pytest.fixture(scope="session", autouse=True)
def one_aioascend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Programs that tests start import the aioascend that the tests import.

    Started from the checkout they would find its folder `aioascend` first, which has no compiled parts.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        package_folder = str(Path(aioascend.__file__).parent.parent)
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [package_folder, os.environ.get("PYTHONPATH")])))
        yield


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """A job in the background may inherit that SIGINT is ignored; programs that tests start must not."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def quick_collections() -> Iterator[None]:
    """What is there before the first test stays: the collections that many tests end with need not look at it."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
