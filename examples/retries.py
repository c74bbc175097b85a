# SPDX-License-Identifier: Apache-2.0
"""What is tried again, what is not, and what a timeout does: with faults that the simulator makes on demand.

    pip install "aioascend[retries]"
    python examples/retries.py [--loop asyncio|uvloop|trio]

`aa.is_transient` tells which errors can go away by themselves. The package stamina does the waiting, with back-off and
jitter, and gives up after some attempts; its decorator works on every loop.

The model is a description (docs/simulator/model-description.md).
"""

from __future__ import annotations

import anyio
import numpy as np
import stamina
from stamina.instrumentation import RetryDetails, set_on_retry_hooks

import aioascend as aa
from _loops import run
from aioascend.testing import Simulator, simulator

DEVICE_OUT_OF_MEMORY, AICORE_EXCEPTION = 207018, 507015  # the first is transient, the second the caller's fault
MODEL = b"""
latency_us = 1000
inputs = [{ name = "x", shape = [8] }]
outputs = [{ name = "y", shape = [8], fill = "copy" }]
"""
X = np.arange(8, dtype=np.float32)


def again(error: Exception) -> bool:
    """Whether to try once more: also after a timeout, as the model computes the same every time."""
    return aa.is_transient(error) or isinstance(error, TimeoutError)


class Client:
    """A model, called the way a service would."""

    def __init__(self, model: aa.Model) -> None:
        self.model = model
        self.attempts = 0

    @stamina.retry(on=again, attempts=4, wait_initial=0.02, wait_max=0.1)
    async def __call__(self, x: np.ndarray) -> np.ndarray:
        self.attempts += 1
        with anyio.fail_after(0.5):  # of each attempt
            return np.asarray(await self.model(x))


async def recovers(client: Client, sim: Simulator) -> bool:
    """Two runs fail, with what may go away; the third attempt has the answer."""
    for nth in (1, 2):
        sim.fail_task(nth=nth, kind="execute", code=DEVICE_OUT_OF_MEMORY)
    answer = await client(X)
    return client.attempts == 3 and bool((answer == X).all())


async def gives_up_at_once(client: Client, sim: Simulator) -> bool:
    """A run fails in a way that it would fail again: one attempt, and the error."""
    sim.fail_task(kind="execute", code=AICORE_EXCEPTION)
    try:
        await client(X)
    except aa.TaskError as error:
        print(f"not tried again, as it is the {error.retry}'s: {error.name}")
        return client.attempts == 1
    return False


async def outlives_a_hang(client: Client, sim: Simulator) -> bool:
    """The device stands still until the first attempt has been given up; what it was given is not called back."""
    held = sim.hold(client.model.stream)

    def go_on(details: RetryDetails) -> None:
        sim.release(client.model.stream)

    set_on_retry_hooks([tell, go_on])
    with held:
        answer = await client(X)
    return client.attempts == 2 and bool((answer == X).all())


def tell(details: RetryDetails) -> None:
    """What stamina calls before it waits; without hooks of one's own it logs."""
    error = details.caused_by
    print(f"attempt {details.retry_num} failed with {getattr(error, 'name', '') or type(error).__name__}, once more")


async def main() -> bool:
    sim = simulator("sim")
    results = {}
    async with aa.open_device(0, backend="sim") as npu:
        for scene in (recovers, gives_up_at_once, outlives_a_hang):
            set_on_retry_hooks([tell])
            async with npu.load_model(MODEL, name="copy") as model:
                results[scene.__name__] = await scene(Client(model), sim)
    print(", ".join(f"{name}: {'yes' if right else 'no'}" for name, right in results.items()))
    return all(results.values())


if __name__ == "__main__":
    run(main, __doc__)
