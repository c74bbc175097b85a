# SPDX-License-Identifier: Apache-2.0
"""Control over the simulator, for tests of code that uses aioascend.

    sim = aioascend.testing.simulator()
    with sim.hold(stream):          # nothing of this stream starts
        copy = stream.memcpy(x, y)
        assert not copy.done()
    await copy

docs/simulator/control.md shows how to write tests with it that do not depend on timing. It needs no test
framework.
"""

from aioascend.testing._arguments import LIVE_OBJECTS, TASK_KINDS
from aioascend.testing._simulator import Simulator, Undo, simulator
from aioascend.testing._timeline import TaskRecord, UnitOverlap, unit_overlap

__all__ = [
    "simulator",
    "Simulator",
    "Undo",
    "TaskRecord",
    "UnitOverlap",
    "unit_overlap",
    "TASK_KINDS",
    "LIVE_OBJECTS",
]
