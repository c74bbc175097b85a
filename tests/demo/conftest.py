# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from aioascend.demo.files import bundled_models
from aioascend.demo.pages import Page, default_pages
from aioascend.demo.pipeline import Models
from demo.onnx_models import onnx_models


@pytest.fixture(scope="session")
def pages() -> list[Page]:
    return default_pages()


@pytest.fixture(scope="session")
def models() -> Models:
    return onnx_models(bundled_models())


@pytest.fixture(
    params=[
        pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
        pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
        pytest.param(("trio", {}), id="trio"),
    ]
)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param
