# SPDX-License-Identifier: Apache-2.0
"""Many callers, few calls: requests that come close together share one run of a model."""

from aioascend.batcher.batcher import Batcher as Batcher
from aioascend.batcher.statistics import BatcherStatistics as BatcherStatistics
from aioascend.batcher.targets import by_shape as by_shape

__all__ = ["Batcher", "BatcherStatistics", "by_shape"]
