# SPDX-License-Identifier: Apache-2.0
"""Interpreter exit, fork, signals: each in a process of its own, which must end as expected and say nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from runtime.processes import LOOPS, run_python


@pytest.fixture(params=list(LOOPS))
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_exit_with_work_in_flight(loop: str) -> None:
    run_python(
        """
        async def main():
            npu = await aa.open_device(0)
            stream = await npu.create_stream()
            buffer = npu.empty(1 << 20, "uint8")
            await stream.memset(buffer, 0)
            sim.hold(stream)
            for _ in range(1000):
                stream.memset(buffer, 1)
            sys.exit(3)

        run(main)  if run.__module__.startswith("trio") else run(main())
        """,
        loop=loop,
        returncode=3,
    )


def test_exit_in_the_middle_of_awaits(loop: str) -> None:
    run_python(
        """
        state = {}
        async def main():
            state["npu"] = npu = await aa.open_device(0)
            state["stream"] = stream = await npu.create_stream()
            buffer = npu.empty(1 << 20, "uint8")
            state["operations"] = [stream.memset(buffer, i % 256) for i in range(3000)]

        run(main)  if run.__module__.startswith("trio") else run(main())
        """,
        loop=loop,
    )


def test_loop_closed_with_work_in_flight_and_a_new_one(loop: str) -> None:
    run_python(
        """
        state = {}

        async def first():
            state["npu"] = npu = await aa.open_device(0)
            state["stream"] = stream = await npu.create_stream()
            state["buffer"] = buffer = npu.empty(64, "uint8")
            await stream.memset(buffer, 0)
            sim.hold(stream)
            state["operations"] = [stream.memset(buffer, 5) for _ in range(10)]

        async def second():
            sim.release(state["stream"])
            await state["stream"]  # the last operation was submitted in the other loop
            target = np.zeros(64, "uint8")
            await state["stream"].memcpy(target, state["buffer"])
            assert (target == 5).all()
            await state["npu"].close()

        for main in (first, second):
            run(main)  if run.__module__.startswith("trio") else run(main())
        state.clear()
        gc.collect()
        from aioascend import _native
        _native.forget_closed_loops()
        assert _native.ticket_counts()["live"] == 0
        print("done")
        """,
        loop=loop,
        stdout="done\n",
    )


def test_keyboard_interrupt_in_a_gather() -> None:
    run_python(
        """
        async def main():
            async with aa.open_device(0) as npu, npu.create_stream() as stream:
                buffer = npu.empty(64, "uint8")
                await stream.memset(buffer, 0)
                sim.hold(stream)
                operations = [stream.memset(buffer, 1) for _ in range(100)]
                asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
                try:
                    await asyncio.gather(*operations)
                finally:
                    sim.release(stream)

        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("interrupted")
        """,
        stdout="interrupted\n",
    )


def test_fork_after_use_is_refused_clearly_and_the_parent_goes_on() -> None:
    run_python(
        """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)

        async def main():
            async with aa.open_device(0) as npu, npu.create_stream() as stream:
                buffer = npu.empty(64, "uint8")
                await stream.memset(buffer, 0)
                sim.hold(stream)
                pending = stream.memset(buffer, 1)
                pid = os.fork()
                if pid == 0:
                    code = 1
                    try:
                        stream.memset(buffer, 2)
                    except aa.ForkError as error:
                        code = 7 if "spawn" in str(error) else 2
                    del pending, buffer
                    gc.collect()
                    os._exit(code)
                _, status = os.waitpid(pid, 0)
                assert os.waitstatus_to_exitcode(status) == 7, status
                sim.release(stream)
                await pending

        asyncio.run(main())
        print("parent")
        """,
        stdout="parent\n",
    )


def test_a_call_of_a_model_in_a_forked_child_is_refused_although_it_would_have_to_wait() -> None:
    run_python(
        """
        import warnings
        import numpy as np
        warnings.simplefilter("ignore", DeprecationWarning)
        MODEL = b'[[inputs]]\\nname = "x"\\nshape = [4]\\n[[outputs]]\\nname = "y"\\nshape = [4]\\n'

        async def main():
            async with aa.open_device(0) as npu, npu.load_model(MODEL, concurrency=1) as model:
                x = np.zeros(4, "float32")
                await model(x)
                sim.hold(model.stream)
                pending = asyncio.ensure_future(model(x))
                await asyncio.sleep(0)
                assert model.statistics().running == 1
                pid = os.fork()
                if pid == 0:
                    code = 1
                    try:
                        await model(x)
                    except aa.ForkError:
                        code = 7
                    os._exit(code)
                _, status = os.waitpid(pid, 0)
                assert os.waitstatus_to_exitcode(status) == 7, status
                sim.release(model.stream)
                await pending

        asyncio.run(main())
        print("parent")
        """,
        stdout="parent\n",
    )


def test_a_forked_child_exits_normally() -> None:
    # Forked between two runs: a child that closes a running loop would take the parent's epoll registrations away.
    run_python(
        """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        state = {}

        async def first():
            state["npu"] = npu = await aa.open_device(0)
            state["stream"] = stream = await npu.create_stream()
            state["buffer"] = npu.empty(64, "uint8")
            await stream.memset(state["buffer"], 0)
            sim.hold(stream)
            state["pending"] = stream.memset(state["buffer"], 1)

        async def second():
            sim.release(state["stream"])
            await state["stream"].memset(state["buffer"], 2)
            await state["npu"].close()

        asyncio.run(first())
        pid = os.fork()
        if pid == 0:
            sys.exit(5)
        _, status = os.waitpid(pid, 0)
        asyncio.run(second())
        print(os.waitstatus_to_exitcode(status))
        """,
        stdout="5\n",
    )


def test_fork_before_use_is_fine() -> None:
    run_python(
        """
        import multiprocessing

        def work():
            async def main():
                async with aa.open_device(0) as npu, npu.create_stream() as stream:
                    await stream.memset(npu.empty(64, "uint8"), 0)
            asyncio.run(main())

        context = multiprocessing.get_context("fork")
        process = context.Process(target=work)
        process.start()
        process.join()
        print(process.exitcode)
        """,
        stdout="0\n",
    )


def test_many_runs_in_one_process(loop: str) -> None:
    run_python(
        """
        async def main():
            async with aa.open_device(0) as npu, npu.create_stream() as stream:
                await stream.memset(npu.empty(64, "uint8"), 0)

        def once():
            run(main)  if run.__module__.startswith("trio") else run(main())

        once()
        gc.collect()
        fds = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            once()
        gc.collect()
        from aioascend import _native
        _native.forget_closed_loops()
        assert len(os.listdir("/proc/self/fd")) <= fds, (fds, os.listdir("/proc/self/fd"))
        """,
        loop=loop,
    )


def test_import_touches_nothing() -> None:
    script = """
import os, threading
before = dict(os.environ)
import aioascend
assert before == dict(os.environ)
assert threading.active_count() == 1
assert "libascendcl" not in open("/proc/self/maps").read()
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_exit_with_models_in_reference_cycles() -> None:
    run_python(
        """
        async def main():
            npu = await aa.open_device(0)
            model = await npu.load_model(
                b'[[inputs]]\\nname = "x"\\nshape = [4]\\n[[outputs]]\\nname = "y"\\nshape = [4]\\nfill = "copy"\\n')
            await model(np.ones(4, "float32"))
            model.itself = [model, npu]
            event = model.stream.record()
            model.stream.events = [event, model]

        asyncio.run(main())
        gc.collect()
        """,
    )


def test_globals_at_exit_say_nothing() -> None:
    run_python(
        """
        async def main():
            global stream, npu
            async with aa.open_device(0) as npu, npu.create_stream() as stream:
                await stream.memset(npu.empty(4, "uint8"), 1)

        asyncio.run(main())
        """,
    )


def test_an_exception_over_a_stuck_device_does_not_keep_the_process() -> None:
    run_python(
        """
        from aioascend import _closing
        _closing.GRACE_S = 0.2

        async def main():
            async with aa.open_device(0) as npu, npu.create_stream() as stream:
                await stream.memset(npu.empty(4, "uint8"), 1)
                sim.hold(stream)
                stream.memset(npu.empty(4, "uint8"), 1)
                raise KeyError("stop")

        try:
            asyncio.run(main())
        except KeyError:
            print("left")
        async def again():
            async with aa.open_device(0) as npu, npu.create_stream() as stream:
                await stream.memset(npu.empty(4, "uint8"), 1)
        asyncio.run(again())
        print("opened again")
        """,
        stdout="left\nopened again\n",
    )
