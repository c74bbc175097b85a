# SPDX-License-Identifier: Apache-2.0
"""How hard the property tests try: for minutes, with other examples each time, under HYPOTHESIS_PROFILE=long."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from runtime.conftest import npu, other, sim, stream  # noqa: F401 - fixtures; `sim` is the balance check

UNCHECKED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile(
    "quick",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=60,
    stateful_step_count=30,
    suppress_health_check=UNCHECKED,
)
settings.register_profile(
    "long",
    database=None,
    deadline=None,
    max_examples=1500,
    stateful_step_count=60,
    print_blob=True,
    suppress_health_check=UNCHECKED,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": False}
