# SPDX-License-Identifier: Apache-2.0
"""The composition layer on each event loop, on the simulator, with the balance check of the runtime's tests."""

from __future__ import annotations

from runtime.conftest import (  # noqa: F401 - fixtures and hooks
    anyio_backend,
    npu,
    other,
    pytest_collection_modifyitems,
    pytest_configure,
    sim,
    stream,
)
