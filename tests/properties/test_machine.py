# SPDX-License-Identifier: Apache-2.0
"""Random programs beside the reference, and beside references that are wrong in one thing, which has to be found."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test

from properties.machine import Machine
from properties.reference import Failure, Operation, Reference


def test_the_runtime_does_what_the_documentation_says() -> None:
    run_state_machine_as_test(Machine)


def test_the_same_where_the_device_takes_its_time(tmp_path: Path) -> None:
    profile = tmp_path / "brisk.toml"
    profile.write_text('name = "brisk"\nlaunch_overhead_us = 1\n', encoding="utf-8")
    run_state_machine_as_test(type("BriskMachine", (Machine,), {"profile": profile}))


class ForgetsWhatRanBehind(Reference):
    def failed_before(self, operation: Operation) -> set[Failure]:
        return set()


class ForgetsOtherStreams(Reference):
    def failed_elsewhere(self, operation: Operation) -> set[Failure]:
        return set()


class ForgetsThatSomebodyWasTold(Reference):
    def tell(self, failure: Failure) -> None:
        pass


class ForgetsThatFailuresDoNothing(Reference):
    """Takes it that the work of a failed task was done."""

    def _strikes(self, operation: Operation) -> bool:
        struck = super()._strikes(operation)
        if struck and isinstance(operation.src, int) and operation.dst is not None:
            operation.dst.bytes[:] = operation.src
        return struck


WRONG = [ForgetsWhatRanBehind, ForgetsOtherStreams, ForgetsThatSomebodyWasTold, ForgetsThatFailuresDoNothing]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_reference_is_found_out(wrong: type[Reference]) -> None:
    machine = type("WrongMachine", (Machine,), {"reference_type": wrong})
    enough = settings(settings(), max_examples=3000, phases=[Phase.generate])
    with pytest.raises((AssertionError, Flaky)):  # the latter: found, but another time the device was quicker
        run_state_machine_as_test(machine, settings=enough)
