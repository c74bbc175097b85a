# SPDX-License-Identifier: Apache-2.0
"""aioascend: a coroutine-native asyncio runtime for Ascend NPUs.

    async with aioascend.open_device(0) as npu:
        detect, classify = await asyncio.gather(npu.load_model("detect.om"), npu.load_model("classify.om"))
        boxes, labels = await asyncio.gather(detect(image), classify(image))

Importing touches no library; the first use finds CANN, or the bundled simulator. Of the environment it reads
AIOASCEND_DEBUG, which turns debug mode on (docs/debugging.md).
"""

import aioascend._interpreter  # noqa: F401 - before anything that is compiled
from aioascend._backend import BackendInfo as BackendInfo
from aioascend._backend import backend_info as backend_info
from aioascend._calls import ModelStatistics as ModelStatistics
from aioascend._native import DeviceBuffer as DeviceBuffer
from aioascend._native import Event as Event
from aioascend._native import Operation as Operation
from aioascend._native import PinnedBuffer as PinnedBuffer
from aioascend.batcher import Batcher as Batcher
from aioascend.batcher import BatcherStatistics as BatcherStatistics
from aioascend.batcher import by_shape as by_shape
from aioascend.device import Device as Device
from aioascend.device import DeviceStatistics as DeviceStatistics
from aioascend.device import MemoryInfo as MemoryInfo
from aioascend.device import open_device as open_device
from aioascend.errors import AclError as AclError
from aioascend.errors import AclTimeoutError as AclTimeoutError
from aioascend.errors import AioascendError as AioascendError
from aioascend.errors import ArgumentError as ArgumentError
from aioascend.errors import BackendError as BackendError
from aioascend.errors import ContextError as ContextError
from aioascend.errors import DeadlineError as DeadlineError
from aioascend.errors import DependencyError as DependencyError
from aioascend.errors import DeviceError as DeviceError
from aioascend.errors import DeviceLostError as DeviceLostError
from aioascend.errors import ForkError as ForkError
from aioascend.errors import ModelError as ModelError
from aioascend.errors import OutOfMemoryError as OutOfMemoryError
from aioascend.errors import QueueFullError as QueueFullError
from aioascend.errors import ReportLostError as ReportLostError
from aioascend.errors import ResourceError as ResourceError
from aioascend.errors import RuntimeClosedError as RuntimeClosedError
from aioascend.errors import TaskError as TaskError
from aioascend.errors import UnsupportedError as UnsupportedError
from aioascend.errors import is_transient as is_transient
from aioascend.health import DeviceHealth as DeviceHealth
from aioascend.health import health as health
from aioascend.infer_queue import InferQueue as InferQueue
from aioascend.infer_queue import InferQueueStatistics as InferQueueStatistics
from aioascend.model import Model as Model
from aioascend.pipeline import Failed as Failed
from aioascend.pipeline import Pipeline as Pipeline
from aioascend.pipeline import PipelineResults as PipelineResults
from aioascend.pipeline import PipelineStatistics as PipelineStatistics
from aioascend.pipeline import Stage as Stage
from aioascend.pipeline import StageStatistics as StageStatistics
from aioascend.pool import StreamLease as StreamLease
from aioascend.pool import StreamPool as StreamPool
from aioascend.pool import StreamPoolStatistics as StreamPoolStatistics
from aioascend.scheduler import Scheduler as Scheduler
from aioascend.scheduler import SchedulerStatistics as SchedulerStatistics
from aioascend.scheduler import SchedulerUnit as SchedulerUnit
from aioascend.scheduler import UnitStatistics as UnitStatistics
from aioascend.stream import Stream as Stream
from aioascend.tensors import TensorInfo as TensorInfo

__version__ = "0.1.0"

__all__ = [
    "AclError",
    "AclTimeoutError",
    "AioascendError",
    "ArgumentError",
    "BackendError",
    "BackendInfo",
    "Batcher",
    "BatcherStatistics",
    "ContextError",
    "DeadlineError",
    "DependencyError",
    "Device",
    "DeviceBuffer",
    "DeviceError",
    "DeviceHealth",
    "DeviceLostError",
    "DeviceStatistics",
    "Event",
    "Failed",
    "ForkError",
    "InferQueue",
    "InferQueueStatistics",
    "MemoryInfo",
    "Model",
    "ModelError",
    "ModelStatistics",
    "Operation",
    "OutOfMemoryError",
    "PinnedBuffer",
    "Pipeline",
    "PipelineResults",
    "PipelineStatistics",
    "QueueFullError",
    "ReportLostError",
    "ResourceError",
    "RuntimeClosedError",
    "Scheduler",
    "SchedulerStatistics",
    "SchedulerUnit",
    "Stage",
    "StageStatistics",
    "Stream",
    "StreamLease",
    "StreamPool",
    "StreamPoolStatistics",
    "TaskError",
    "TensorInfo",
    "UnitStatistics",
    "UnsupportedError",
    "__version__",
    "backend_info",
    "by_shape",
    "health",
    "is_transient",
    "open_device",
]
