# SPDX-License-Identifier: Apache-2.0
"""Requests are put in by some and their results taken out by others."""

from aioascend.infer_queue.infer_queue import InferQueue as InferQueue
from aioascend.infer_queue.statistics import InferQueueStatistics as InferQueueStatistics
