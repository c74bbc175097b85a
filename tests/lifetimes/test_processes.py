# SPDX-License-Identifier: Apache-2.0
"""Exit, Ctrl-C, fork and subinterpreters at the worst moments, each in a process of its own."""

from __future__ import annotations

import sys

import pytest

from runtime.processes import MODEL, run_python

FORKING = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads

async def start():
    global npu, stream, buffer
    npu = await aa.open_device(0)
    stream = await npu.create_stream()
    buffer = npu.empty(64, "uint8")
    await stream.memset(buffer, 0)

async def finish():
    await stream.memset(buffer, 1)
    await npu.close()
"""


# --- exit ---


def test_the_worker_drops_what_it_has_not_begun_when_the_process_exits() -> None:
    run_python(
        """
        async def main():
            global npu
            npu = await aa.open_device(0)
            sim.set_call_latency("aclrtMalloc", 0.2)
            for _ in range(1000):
                npu.empty(1 << 20, "uint8")
            while not sim.calls("aclrtMalloc"):
                pass

        asyncio.run(main())
        """,
    )


if not (3, 12, 0) <= sys.version_info[:3] <= (3, 12, 1):  # which start no threads by then

    def test_a_thread_with_a_loop_outlives_the_main_thread() -> None:
        run_python(
            """
            def work():
                threading.main_thread().join()

                async def main():
                    async with aa.open_device(0) as npu, npu.create_stream() as stream:
                        await stream.memset(npu.empty(4, "uint8"), 1)
                    print("done")

                asyncio.run(main())

            threading.Thread(target=work).start()
            """,
            stdout="done\n",
        )


def test_exit_under_daemon_threads_with_loops() -> None:
    run_python(
        """
        started = threading.Barrier(4)

        def work():
            async def main():
                async with aa.open_device(0) as npu, npu.create_stream() as stream:
                    buffer = npu.empty(4, "uint8")
                    await stream.memset(buffer, 1)
                    started.wait()
                    while True:
                        await asyncio.gather(*(stream.memset(buffer, value) for value in range(100)))

            asyncio.run(main())

        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
        started.wait()
        sys.exit(3)
        """,
        returncode=3,
    )


# --- Ctrl-C ---


@pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio"])
def test_keyboard_interrupt_in_a_model_call(loop: str) -> None:
    run_python(
        """
        async def main():
            async with aa.open_device(0) as npu, await npu.load_model(MODEL) as model:
                x = np.ones(4, "float32")
                await model(x)
                sim.hold(model.stream)
                threading.Thread(target=interrupt, args=(model.stream,)).start()
                try:
                    await model(x)
                finally:
                    sim.release(model.stream)

        def interrupt(stream):
            while not stream.in_flight:
                pass
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        try:
            run(main) if run.__module__.startswith("trio") else run(main())
        except KeyboardInterrupt:
            print("interrupted")
        """,
        before=MODEL,
        loop=loop,
        stdout="interrupted\n",
    )


def test_keyboard_interrupt_while_trio_begins_to_wait() -> None:
    run_python(
        """
        from aioascend import _trio

        class Interrupted:
            def __init__(self, operation):
                self.operation = operation

            def add_waiter(self, waiter):
                added = self.operation.add_waiter(waiter)
                signal.raise_signal(signal.SIGINT)
                return added

            def remove_waiter(self, waiter):
                self.operation.remove_waiter(waiter)

        async def main():
            async with aa.open_device(0) as npu, npu.create_stream() as stream:
                with sim.hold(stream):
                    operation = stream.memset(npu.empty(4, "uint8"), 1)
                    try:
                        await _trio.wait(Interrupted(operation))
                    except KeyboardInterrupt:
                        print("interrupted")
                await operation

        run(main)
        """,
        loop="trio",
        stdout="interrupted\n",
    )


# --- fork ---


def test_nothing_hangs_in_a_child_although_locks_are_held_for_ever() -> None:
    run_python(
        """
        asyncio.run(start())
        event = None
        sim.set_call_latency("aclrtMemsetAsync", 0.5)
        submitting = threading.Thread(target=lambda: stream.memset(buffer, 1))
        before = sim.calls("aclrtMemsetAsync")
        submitting.start()
        while sim.calls("aclrtMemsetAsync") == before:
            pass
        if (pid := os.fork()) == 0:  # the submit holds the lock of the stream
            for use in (lambda: stream.queued, npu.statistics, lambda: stream.memset(buffer, 1), stream.record):
                try:
                    use()
                except aa.ForkError:
                    pass
                else:
                    os._exit(1)

            async def close():
                await stream.close()
                await npu.close()

            asyncio.run(close())
            del stream, npu, buffer
            gc.collect()
            sys.exit(5)
        submitting.join()
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        asyncio.run(finish())
        """,
        before=FORKING,
        stdout="5\n",
    )


def test_a_child_awaits_and_opens_nothing() -> None:
    run_python(
        """
        async def in_child():
            for use in (lambda: pending, lambda: event, lambda: stream, lambda: aa.open_device(0)):
                try:
                    await use()
                except aa.ForkError:
                    continue
                os._exit(1)
            async with npu, stream:
                sys.exit(5)

        asyncio.run(start())
        sim.hold(stream)
        pending = stream.memset(buffer, 1)
        event = stream.record()
        if (pid := os.fork()) == 0:
            asyncio.run(in_child())
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        sim.release(stream)
        asyncio.run(finish())
        """,
        before=FORKING,
        stdout="5\n",
    )


def test_a_child_that_goes_on_with_the_loop_takes_no_wake_up_from_the_parent() -> None:
    run_python(
        """
        import select
        from aioascend import _native

        async def main():
            await start()
            sim.hold(stream)
            stream.memset(buffer, 1)
            waiting = asyncio.ensure_future(stream.join())
            await asyncio.sleep(0)
            reading, writing = os.pipe()
            if (pid := os.fork()) == 0:
                os.read(reading, 1)  # the parent's report has come, and made the descriptor of both readable
                for _ in range(100):
                    await asyncio.sleep(0)
                os._exit(5)
            sim.release(stream)
            select.select([_native.running_bridge().fd], [], [])
            os.write(writing, b".")
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            await waiting
            await finish()

        asyncio.run(main())
        """,
        before=FORKING,
        stdout="5\n",
    )


def test_a_failure_that_nobody_awaited_is_not_told_by_a_child() -> None:
    run_python(
        """
        async def fail():
            await start()
            sim.fail_task(stream=stream)
            failed = stream.memset(buffer, 1)
            while not failed.done():
                await asyncio.sleep(0)

        async def look():
            try:
                await stream
            except aa.TaskError:
                pass

        asyncio.run(fail())
        if (pid := os.fork()) == 0:
            del stream, npu
            gc.collect()
            sys.exit(5)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        asyncio.run(look())
        asyncio.run(finish())
        """,
        before=FORKING,
        stdout="5\n",
    )


def test_multiprocessing(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("workers")
    (folder / "workers.py").write_text(
        """
import asyncio
import numpy as np
import aioascend as aa

async def main():
    async with aa.open_device(0) as npu, npu.create_stream() as stream:
        target = np.zeros(4, "uint8")
        buffer = npu.empty(4, "uint8")
        stream.memset(buffer, 7)
        await stream.memcpy(target, buffer)
        return int(target.sum())

def work(_):
    try:
        return asyncio.run(main())
    except aa.ForkError:
        return "ForkError"
""",
        encoding="utf-8",
    )
    run_python(
        f"""
        sys.path.insert(0, {str(folder)!r})
        import multiprocessing
        import workers

        async def parent():
            await start()
            sim.hold(stream)
            pending = stream.memset(buffer, 1)
            for method in ("fork", "spawn", "forkserver"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    print(method, pool.map(workers.work, [0]))
                    pool.close()
                    pool.join()
            sim.release(stream)
            await pending
            await finish()

        if __name__ == "__main__":
            asyncio.run(parent())
        """,
        before=FORKING,
        stdout="fork ['ForkError']\nspawn [28]\nforkserver [28]\n",
    )


# --- subinterpreters ---


@pytest.mark.parametrize("first", ["the main interpreter", "the subinterpreter"])
def test_a_subinterpreter_is_refused_in_words(first: str) -> None:
    # A program of its own, as run_python imports aioascend first.
    run_python(
        f"""
        code = '''
        import subprocess, sys
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        if {first == "the main interpreter"}:
            import aioascend
        inside = interpreters.create()
        interpreters.run_string(inside, "\\\\n".join([
            "try:",
            "    import aioascend",
            "except ImportError as error:",
            "    print(error, flush=True)",
        ]))
        interpreters.destroy(inside)
        import aioascend
        print("imported")
        '''
        import subprocess, textwrap
        subprocess.run([sys.executable, "-W", "error", "-c", textwrap.dedent(code)], check=True, timeout=60)
        """,
        stdout="aioascend cannot be used in a subinterpreter, because a process has one ACL library and one numpy for "
        "all of them; use threads, or processes started with the 'spawn' method\nimported\n",
    )
