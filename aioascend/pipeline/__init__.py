# SPDX-License-Identifier: Apache-2.0
"""Pipelines: items that pass through stages, each an `async def`, several of them at the same time."""

from aioascend.pipeline.pipeline import Pipeline as Pipeline
from aioascend.pipeline.results import Failed as Failed
from aioascend.pipeline.results import PipelineResults as PipelineResults
from aioascend.pipeline.stage import Stage as Stage
from aioascend.pipeline.statistics import PipelineStatistics as PipelineStatistics
from aioascend.pipeline.statistics import StageStatistics as StageStatistics
