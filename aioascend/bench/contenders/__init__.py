# SPDX-License-Identifier: Apache-2.0
"""The ways to wait for an NPU in a program with an event loop, each as its users write it."""

from __future__ import annotations

from aioascend.bench.contenders.base import Contender, Place
from aioascend.bench.contenders.executor import Executor4, Executor32
from aioascend.bench.contenders.ours import Aioascend
from aioascend.bench.contenders.polling import PollingBusy, PollingMillisecond
from aioascend.bench.contenders.pyacl import PyAcl
from aioascend.bench.contenders.thread import Thread

__all__ = ["CONTENDERS", "Contender", "Place"]

CONTENDERS: dict[str, type[Contender]] = {
    contender.name: contender
    for contender in (Aioascend, PyAcl, Executor4, Executor32, Thread, PollingBusy, PollingMillisecond)
}
