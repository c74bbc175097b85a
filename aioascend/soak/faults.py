# SPDX-License-Identifier: Apache-2.0
"""The table of faults, and how the simulator is told to make them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from aioascend import Stream
from aioascend.testing import Simulator

__all__ = ["FAULTS", "LOST_CODE", "LOST_CODES", "Fault", "Injector", "Kind"]

TASK_CODES = (507011, 507014, 507015, 507017, 507018, 507034, 507035, 507049, 507057, 507899)
REFUSALS = (507000, 507899, 207001, 207005)
LOST_CODE = 507010
LOST_CODES = (LOST_CODE, 107022)  # the second one where a reset came before the loss was noticed

# The call that submits a task of each kind.
CALLS = {
    "memcpy_h2d": "aclrtMemcpyAsync",
    "memcpy_d2h": "aclrtMemcpyAsync",
    "memcpy_d2d": "aclrtMemcpyAsync",
    "memset": "aclrtMemsetAsync",
    "execute": "aclmdlExecuteAsync",
    "event_record": "aclrtRecordEvent",
    "event_wait": "aclrtStreamWaitEvent",
}


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    Attributes:
        weight: How often it comes, beside the others.
        codes: What it fails with; 0 where that is not a failure by itself.
    """

    weight: int
    codes: tuple[int, ...] = (0,)


# In 1000 faults. Those that hold a stream up, for as long as the runtime takes to give up a report, are rare.
FAULTS = {
    "task": Kind(700, TASK_CODES),  # a task fails on the device
    "refused": Kind(150, REFUSALS),  # a launch is refused
    "refused event": Kind(10, (207007,)),
    "no pinned memory": Kind(10, (207001,)),
    "no device memory": Kind(10, (207001,)),
    "delivery": Kind(50),  # failures become known at another time from here on
    "delay": Kind(40),  # reports take longer from here on, or no longer
    "broken reports": Kind(10, (507899, 507000)),  # waiting for reports fails
    "refused report": Kind(5, (507899,)),  # asking for one fails
    "dropped report": Kind(5),
}


class Fault(NamedTuple):
    """A fault to come: of the nth task or call from now on."""

    name: str
    nth: int
    code: int


class Injector:
    """Tells the simulator, and remembers what it was told.

    Attributes:
        injected: How many of each kind.
        refusals: The codes that calls were told to fail with, by function.
        dropped: Ids of streams that lose a report.
    """

    def __init__(self, sim: Simulator) -> None:
        self._sim = sim
        self._lazy = False
        self._delay = 0.0
        self.injected: Counter[str] = Counter()
        self.refusals: dict[str, set[int]] = {}
        self.dropped: set[int] = set()
        self._special: dict[str, Callable[[Fault], None]] = {
            "refused event": lambda fault: self.refuse("aclrtCreateEventExWithFlag", fault),
            "no pinned memory": lambda fault: self.refuse("aclrtMallocHost", fault, times=2),
            "no device memory": lambda fault: self.refuse("aclrtMalloc", fault, times=2),
            "delivery": self._switch_delivery,
            "delay": self._switch_delay,
            "broken reports": lambda fault: self.refuse("aclrtProcessReport", fault),
            "refused report": lambda fault: self.refuse("aclrtLaunchCallback", fault),
        }

    def inject(self, fault: Fault, stream: Stream, kind: str) -> None:
        """Make it happen on the stream, to a task of this kind where the fault is one of tasks."""
        self.injected[fault.name] += 1
        if fault.name == "task":
            self._sim.fail_task(fault.nth, fault.code, stream=stream, kind=kind)
        elif fault.name == "refused":
            self.refuse(CALLS[kind], fault)
        elif fault.name == "dropped report":
            self.dropped.add(stream.id)
            self._sim.drop_callback(stream=stream)
        else:
            self._special[fault.name](fault)

    def refuse(self, function: str, fault: Fault, times: int = 1) -> None:
        """Make calls of an ACL function fail."""
        self.refusals.setdefault(function, set()).add(fault.code)
        self._sim.fail_call(function, fault.nth, fault.code, times)

    def set_delivery(self, lazy: bool) -> None:
        """When failed tasks become known: at once, or when somebody asks."""
        self._lazy = lazy
        self._sim.set_exception_delivery("lazy" if lazy else "eager")

    def _switch_delivery(self, _: Fault) -> None:
        self.set_delivery(not self._lazy)

    def _switch_delay(self, fault: Fault) -> None:
        self._delay = 0.0 if self._delay else 0.0002 * fault.nth
        self._sim.delay_report(self._delay)
