# SPDX-License-Identifier: Apache-2.0
"""A pool of streams: who takes them (pool), in which order (queue), and how many there are (supply)."""

from aioascend.pool.pool import StreamLease, StreamPool
from aioascend.pool.statistics import StreamPoolStatistics

__all__ = ["StreamLease", "StreamPool", "StreamPoolStatistics"]
