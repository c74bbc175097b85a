# SPDX-License-Identifier: Apache-2.0
"""Calls spread over devices, streams or models."""

from aioascend.scheduler.scheduler import Scheduler as Scheduler
from aioascend.scheduler.statistics import SchedulerStatistics as SchedulerStatistics
from aioascend.scheduler.statistics import UnitStatistics as UnitStatistics
from aioascend.scheduler.units import SchedulerUnit as SchedulerUnit
