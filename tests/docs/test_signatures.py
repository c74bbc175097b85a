# SPDX-License-Identifier: Apache-2.0
"""The signatures that pages of the guide show are those that there are."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import aioascend as aa

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES: dict[str, dict[str, Any]] = {
    "pool.md": {"StreamPool": aa.StreamPool, "pool.acquire": aa.StreamPool.acquire},
    "batching.md": {"Batcher": aa.Batcher, "batcher": aa.Batcher.__call__},
    "pipelines.md": {
        "Stage": aa.Stage,
        "pipeline": aa.Pipeline.__call__,
        "pipeline.map": aa.Pipeline.map,
        "pipeline.close": aa.Pipeline.close,
    },
    "scheduling.md": {
        "Scheduler": aa.Scheduler,
        "scheduler.run": aa.Scheduler.run,
        "InferQueue": aa.InferQueue,
        "queue.submit": aa.InferQueue.submit,
    },
}


def signature(name: str, found: Any) -> str:
    """Without annotations."""
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(found).parameters.values()
        if parameter.name != "self"
    ]
    return name + str(inspect.Signature(parameters)).replace("'", '"')


@pytest.mark.parametrize(("page", "name"), [(page, name) for page, names in PAGES.items() for name in names])
def test_the_page_shows_the_signature(page: str, name: str) -> None:
    text = " ".join((DOCS / page).read_text(encoding="utf-8").split())
    assert signature(name, PAGES[page][name]) in text
