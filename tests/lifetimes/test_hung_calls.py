# SPDX-License-Identifier: Apache-2.0
"""Exit, closing and resetting while a call of the library does not return, each in a process of its own."""

from __future__ import annotations

import pytest

from runtime.processes import MODEL, run_python


@pytest.mark.parametrize(
    ("function", "loop"),
    [("aclmdlLoadFromMem", "asyncio"), ("aclrtDestroyStream", "uvloop"), ("aclmdlLoadFromMem", "trio")],
)
def test_exit_while_a_call_of_the_library_does_not_return(function: str, loop: str) -> None:
    run_python(
        f"""
        async def main():
            global npu, stream
            npu = await aa.open_device(0)
            stream = await npu.create_stream()
            await stream.memset(npu.empty(4, "uint8"), 1)
            sim.set_call_latency("{function}", 1000)
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(stream.close if "Stream" in "{function}" else lambda: npu.load_model(MODEL))
                    while not sim.calls("{function}"):
                        await anyio.lowlevel.checkpoint()
                    scope.cancel()
            sys.exit(3)

        import anyio
        from aioascend import _threads
        _threads.PATIENCE_S = 0.1
        run(main) if run.__module__.startswith("trio") else run(main())
        """,
        before=MODEL,
        loop=loop,
        returncode=3,
    )


@pytest.mark.parametrize(("function", "end"), [("aclrtProcessReport", "close"), ("aclrtMalloc", "reset")])
def test_closing_and_resetting_while_a_call_of_the_library_does_not_return(function: str, end: str) -> None:
    run_python(
        f"""
        async def main():
            npu = await aa.open_device(0)
            stream = await npu.create_stream()
            await stream.memset(npu.empty(4, "uint8"), 1)
            calls = sim.calls("{function}")
            sim.set_call_latency("{function}", 3600)
            operation = stream.memset(npu.empty(4 << 20, "uint8"), 1)
            while sim.calls("{function}") == calls:
                await asyncio.sleep(0)
            sim.set_call_latency("{function}", 0)  # the one under way goes on
            if "{end}" == "reset":
                await npu.reset()
            else:
                # Of the operation, whose report is lost if it was asked for by then.
                asyncio.get_running_loop().set_exception_handler(lambda *_: None)
                await stream.close()
                await npu.close()
                npu = await aa.open_device(0)
            try:
                await operation
            except aa.ReportLostError:
                pass
            except aa.AclError as error:
                print(type(error).__name__)
            async with npu.create_stream() as stream:
                await stream.memset(npu.empty(4, "uint8"), 1)
            await npu.close()

        run(main())
        """,
        stdout="DeviceLostError\n" if end == "reset" else "",
    )


def test_a_reset_while_a_launch_does_not_return_and_more_waits_behind_it() -> None:
    run_python(
        """
        async def main():
            npu = await aa.open_device(0, flight_limit=2)
            stream = await npu.create_stream()
            buffer = npu.empty(4, "uint8")
            await stream.memset(buffer, 1)
            sim.hold(stream)
            operations = [stream.memset(buffer, value) for value in range(5)]
            calls = sim.calls("aclrtMemsetAsync")
            sim.set_call_latency("aclrtMemsetAsync", 3600)
            sim.release(stream)
            while sim.calls("aclrtMemsetAsync") == calls:
                await asyncio.sleep(0)
            sim.set_call_latency("aclrtMemsetAsync", 0)
            await npu.reset()
            async with npu.create_stream() as stream:
                await stream.memset(npu.empty(4, "uint8"), 1)
            await npu.close()
            print("done")

        run(main())
        """,
        stdout="done\n",
    )


def test_exit_while_the_worker_is_in_a_launch_that_does_not_return() -> None:
    run_python(
        """
        async def main():
            global npu, stream
            npu = await aa.open_device(0)
            sim.set_queue_depth(4)
            stream = await npu.create_stream()
            buffer = npu.empty(1 << 20, "uint8")
            sim.hold(stream)
            for _ in range(20):
                stream.memcpy(buffer, bytes(1 << 20))
            sim.wait_blocked(stream)

        asyncio.run(main())
        """,
    )
