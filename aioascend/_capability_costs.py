# SPDX-License-Identifier: Apache-2.0
"""What it costs when a library lacks an optional capability, in the words of `aioascend doctor`."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["COSTS", "costs_of"]

# Capabilities that are not listed here are not used, so nothing is lost without them.
COSTS: dict[str, str] = {
    "launch_callback": "an await is woken by looking at events again and again, slower than by a callback",
    "event_ex": "events are of the older kind, which the device has fewer of",
    "query_event_status": "nothing is lost, an older call does the same",
    "event_sync_timeout": "without callbacks as well, an await is woken up to some milliseconds late",
    "stream_query": "a stream that has stopped, or a lost device, is not noticed, and an await can hang",
    "stream_config": "streams have no priority",
    "stream_get_id": "a failure is blamed on every busy stream of the device",
    "last_task_id": "a failure is blamed on all operations in flight on its stream, not on one",
    "sync_timeout": "a failure that was raised is returned once more to whoever synchronises the stream",
    "error_message": "errors carry no text of the library, only code, name and hint",
    "exception_info": "a failed task is not noticed when it fails",
    "exception_register": "another library that sets its own exception callback takes the failures away",
    "exception_set": "without exception_register as well, a failed task is not noticed when it fails",
    "exception_error_code": "every failed task has the code 507000",
    "stream_force_destroy": "a stream that was given up is kept until the device is closed",
    "device_force_reset": "a device out of service cannot be used again by this process",
    "stream_abort": "aborting a stream gives it up, and its work goes on",
    "pointer_attributes": "pinned memory that was not allocated here is copied once more",
    "device_info": "a stream pool that is given no size has up to 8 streams, whatever the device",
    "models": "models cannot be loaded",
    "dynamic_dims": "models that were compiled for a choice of dimensions cannot run",
    "dataset_tensor_desc": "models of dynamic shape cannot run",
}


def costs_of(capabilities: Mapping[str, bool]) -> dict[str, str]:
    """What each capability that is missing, and would be used, costs."""
    return {name: cost for name, cost in COSTS.items() if not capabilities.get(name, True)}
