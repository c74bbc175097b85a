# SPDX-License-Identifier: Apache-2.0
"""The fixtures of tests/runtime: every event loop, and nothing may be left behind."""

from runtime.conftest import anyio_backend as anyio_backend
from runtime.conftest import debugging as debugging
from runtime.conftest import npu as npu
from runtime.conftest import pytest_collection_modifyitems as pytest_collection_modifyitems
from runtime.conftest import pytest_configure as pytest_configure
from runtime.conftest import sim as sim
from runtime.conftest import stream as stream
