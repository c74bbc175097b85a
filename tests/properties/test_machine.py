# SPDX-License-Identifier: Apache-2.0
"""Random programs against the reference."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from properties.machine import Machine


def test_the_runtime_does_what_the_documentation_says() -> None:
    run_state_machine_as_test(Machine)
