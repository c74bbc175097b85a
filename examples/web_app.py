# SPDX-License-Identifier: Apache-2.0
"""NPU calls inside a web application, on the loop that serves it, beside a TCP client on the same loop.

    pip install starlette uvicorn httpx
    python examples/web_app.py [--loop asyncio|uvloop]

The application opens the device and loads the model when it starts, and closes them when it stops. An endpoint awaits
the answer like anything else; requests that come close together share a run of the model, and when too many wait, one
more is told to come again. A task of the application is a client of a TCP server that sends measurements, and asks the
same model about each. No thread, no executor, no bridge between loops. FastAPI is built on Starlette, so that its
endpoints look the same. The model is described, and the program is its own client, and its own sensor.
"""

from __future__ import annotations

import contextlib
import json
import math
import socket
from collections.abc import AsyncIterator

import anyio
import anyio.abc
import httpx
import uvicorn
from anyio.streams.buffered import BufferedByteReceiveStream
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import aioascend as aa
from _loops import run, together

REQUESTS, MEASUREMENTS = 30, 20
MODEL = b"""
latency_us = 2000
dynamic_batch = [1, 4, 8]
inputs = [{ name = "values", shape = [-1, 4] }]
outputs = [{ name = "sum", shape = [-1, 1], fill = "sum" }]
"""


async def predict(request: Request) -> JSONResponse:
    """POST a list of four numbers. The status says whose fault a failure is, and whether to come again."""
    try:
        answer = await request.app.state.batcher(await request.json(), timeout=10)
    except (TypeError, ValueError) as error:
        return JSONResponse({"error": str(error)}, status_code=400)
    except aa.QueueFullError as error:
        later = {"Retry-After": str(math.ceil(error.retry_after or 1))}
        return JSONResponse({"error": str(error)}, status_code=503, headers=later)
    except aa.AioascendError as error:
        return JSONResponse({"error": str(error)}, status_code=503 if aa.is_transient(error) else 500)
    return JSONResponse({"sum": float(answer.item())})


async def health(request: Request) -> JSONResponse:
    """GET how the device and the batcher are."""
    now = request.app.state.batcher.statistics()
    return JSONResponse({"devices": [one.state for one in aa.health()], "waiting": now.waiting, "ok": now.ok})


async def measured(request: Request) -> JSONResponse:
    """GET what the model has said of the measurements."""
    return JSONResponse(request.app.state.measured)


async def follow(app: Starlette) -> None:
    """The TCP client: a line is a measurement."""
    async with await anyio.connect_tcp(*app.state.sensor) as connection:
        received = BufferedByteReceiveStream(connection)
        with contextlib.suppress(anyio.IncompleteRead):  # the sensor has hung up
            while True:
                values = json.loads(await received.receive_until(b"\n", 1000))
                app.state.measured.append(float((await app.state.batcher(values)).item()))
    app.state.sensor_done.set()


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    app.state.measured, app.state.sensor_done = [], anyio.Event()
    async with (
        aa.open_device(0, backend="sim") as npu,
        npu.load_model(MODEL, name="sum") as model,
        aa.Batcher(model, overflow="reject") as app.state.batcher,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(follow, app)
        yield
        tasks.cancel_scope.cancel()


async def sense(connection: anyio.abc.SocketStream) -> None:
    """The sensor's end."""
    async with connection:
        for number in range(MEASUREMENTS):
            await connection.send(json.dumps([number] * 4).encode() + b"\n")


async def visit(app: Starlette, address: str) -> bool:
    """What clients of the application do."""
    async with httpx.AsyncClient(base_url=address, trust_env=False) as client:

        async def ask(number: int) -> bool:
            reply = await client.post("/predict", json=[number, 1, 2, 3])
            return bool(reply.json() == {"sum": number + 6})

        right = await together(ask, range(REQUESTS))
        refused = await client.post("/predict", json=[1, 2, "three", 4])
        await app.state.sensor_done.wait()
        seen, state = [(await client.get(path)).json() for path in ("/measured", "/health")]
    print(f"{sum(right)} of {REQUESTS} requests were answered right; wrong: {refused.status_code}, {refused.text}")
    print(f"{len(seen)} measurements, the last one makes {seen[-1]}; health: {state}")
    wanted = [4.0 * number for number in range(MEASUREMENTS)]
    return bool(all(right) and refused.status_code == 400 and seen == wanted)


async def main() -> bool:
    routes = [Route("/predict", predict, methods=["POST"]), Route("/measured", measured), Route("/health", health)]
    app = Starlette(routes=routes, lifespan=lifespan)
    sensor = await anyio.create_tcp_listener(local_host="127.0.0.1")
    app.state.sensor = sensor.extra_attributes[anyio.abc.SocketAttribute.local_address]()
    async with sensor, anyio.create_task_group() as sensors:
        sensors.start_soon(sensor.serve, sense)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none"))
            async with anyio.create_task_group() as servers:
                servers.start_soon(server.serve, [listening])
                right = await visit(app, f"http://127.0.0.1:{listening.getsockname()[1]}")
                server.should_exit = True
        sensors.cancel_scope.cancel()
    return right


if __name__ == "__main__":
    run(main, __doc__, loops=("asyncio", "uvloop"))
