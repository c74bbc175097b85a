# SPDX-License-Identifier: Apache-2.0
"""Models: calls, checks, gears, dynamic shapes, one run at a time, life cycle."""

from __future__ import annotations

import itertools
import traceback
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend as aa
from aioascend.testing import Simulator

pytestmark = pytest.mark.anyio

COPY = """
[[inputs]]
name = "x"
shape = [2, 8]
[[outputs]]
name = "y"
shape = [2, 8]
fill = "copy"
"""

TWO = """
[[inputs]]
name = "image"
shape = [4]
[[inputs]]
name = "scale"
dtype = "int32"
shape = [1]
[[outputs]]
name = "copied"
shape = [4]
fill = "copy"
[[outputs]]
name = "total"
shape = [1]
fill = "sum"
"""

BATCHES = """
dynamic_batch = [1, 4]
[[inputs]]
name = "x"
shape = [-1, 3]
[[outputs]]
name = "y"
shape = [-1, 1]
fill = "sum"
"""

SIZES = """
dynamic_hw = [[4, 4], [2, 8]]
[[inputs]]
name = "x"
shape = [1, 1, -1, -1]
[[outputs]]
name = "y"
shape = [1, 1, -1, -1]
fill = "copy"
"""

DIMS = """
dynamic_dims = [[1, 2], [3, 4]]
[[inputs]]
name = "x"
shape = [-1, -1]
[[outputs]]
name = "y"
shape = [-1, -1]
fill = "copy"
"""

SHAPES = """
[[inputs]]
name = "x"
shape = [-1, -1]
[[outputs]]
name = "y"
shape = [-1, -1]
fill = "copy"
"""


@pytest.fixture
def path(tmp_path: Path) -> Any:
    def write(text: str, name: str = "model.toml") -> Path:
        file = tmp_path / name
        file.write_text(text)
        return file

    return write


async def test_numpy_in_numpy_out(npu: aa.Device, path: Any) -> None:
    x = np.arange(16, dtype="float32").reshape(2, 8)
    async with await npu.load_model(path(COPY)) as model:
        assert [(info.name, info.shape, info.dtype) for info in model.input_infos] == [("x", (2, 8), np.float32)]
        assert model.name == "model.toml"
        y = await model(x)
        assert isinstance(y, np.ndarray)
        np.testing.assert_array_equal(y, x)
        np.testing.assert_array_equal(await model(x=x), x)
        np.testing.assert_array_equal(await model(x.tolist()), x)
    with pytest.raises(aa.RuntimeClosedError, match=r"model\.toml"):
        await model(x)


async def test_several_inputs_and_outputs(npu: aa.Device, path: Any) -> None:
    image, scale = np.arange(4, dtype="float32"), np.array([3], "int32")
    async with await npu.load_model(path(TWO)) as model:
        outputs = await model(image, scale=scale)
        assert isinstance(outputs, tuple)
        np.testing.assert_array_equal(outputs[0], image)
        np.testing.assert_array_equal(outputs[1], [6])
        with pytest.raises(TypeError, match="'scale'"):
            await model(image)
        with pytest.raises(TypeError, match="'zoom'"):
            await model(image, scale=scale, zoom=scale)
        with pytest.raises(TypeError, match="twice"):
            await model(image, scale, image=image)
        with pytest.raises(TypeError, match="3 inputs"):
            await model(image, scale, scale)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (np.zeros((2, 8), "float64"), TypeError, "input 'x' .* must be float32, not float64"),
        (np.zeros((2, 9), "float32"), ValueError, r"input 'x' .* must have shape \(2, 8\), not \(2, 9\)"),
        (np.zeros((16,), "float32"), ValueError, "input 'x'"),
        (np.zeros((2, 8), ">f4"), TypeError, "input 'x'"),
        ("text", TypeError, "input 'x'"),
        (None, TypeError, "input 'x'"),
    ],
)
async def test_what_does_not_fit_names_the_input(
    npu: aa.Device, path: Any, value: object, error: type[Exception], message: str
) -> None:
    async with await npu.load_model(path(COPY)) as model:
        with pytest.raises(error, match=message):
            await model(value)
        assert (await model(np.ones((2, 8), "float32")) == 1).all()


async def test_a_view_that_is_not_contiguous_is_taken(npu: aa.Device, path: Any) -> None:
    x = np.arange(16, dtype="float32").reshape(8, 2).T
    async with await npu.load_model(path(COPY)) as model:
        np.testing.assert_array_equal(await model(x), x)


async def test_load_from_bytes(npu: aa.Device) -> None:
    async with await npu.load_model(COPY.encode(), name="copy") as model:
        assert model.name == "copy"
        assert (await model(np.ones((2, 8), "float32")) == 1).all()


async def test_many_calls_of_one_model_get_their_own_answers(npu: aa.Device, path: Any) -> None:
    async with await npu.load_model(path(COPY)) as model:

        async def call(value: int) -> None:
            y = await model(np.full((2, 8), value, "float32"))
            assert (y == value).all()

        async with anyio.create_task_group() as group:
            for value in range(50):
                group.start_soon(call, value)


async def test_device_buffers_on_two_streams_do_not_overlap(
    npu: aa.Device, path: Any, stream: aa.Stream, other: aa.Stream
) -> None:
    """The library, and the simulator, forbid one model on two streams at the same time."""
    x = np.arange(16, dtype="float32").reshape(2, 8)
    async with await npu.load_model(path("latency_us = 2000\n" + COPY)) as model:
        a, b, c = npu.empty((2, 8)), npu.empty((2, 8)), npu.empty((2, 8))
        stream.memcpy(a, x)
        for _ in range(5):
            stream.execute(model, [a], [b])
            other.execute(model, [a], [c])
        y, z = np.zeros((2, 8), "float32"), np.zeros((2, 8), "float32")
        await stream.memcpy(y, b)
        await other.memcpy(z, c)
        np.testing.assert_array_equal(y, x)
        np.testing.assert_array_equal(z, x)
        with pytest.raises(ValueError, match="1 input"):
            stream.execute(model, [a, a], [b])
        with pytest.raises(ValueError, match="output 'y'"):
            model.execute([a], [npu.empty(3)])
        with pytest.raises(TypeError, match="DeviceBuffer"):
            model.execute([a], [x])  # type: ignore[list-item]


async def test_a_run_waits_for_the_run_on_another_stream_not_for_what_follows_it(
    npu: aa.Device, path: Any, stream: aa.Stream, other: aa.Stream, sim: Simulator, tmp_path: Path
) -> None:
    profile = tmp_path / "profile.toml"
    profile.write_text('name = "slow-copies"\nai_cores = 1\ncopy_latency_us = 1000\n')
    sim.set_profile(profile)
    async with await npu.load_model(path("latency_us = 1000\n" + COPY)) as model:
        a, b = npu.empty((2, 8)), npu.empty((2, 8))
        y, z = await npu.pinned((2, 8)), await npu.pinned((2, 8))
        with sim.virtual_time():
            await stream.memset(b, 0)
            await stream.memcpy(a, np.ones((2, 8), "float32"))
            with sim.hold(device=npu):  # until all is submitted; nothing waits on the host, as all the memory is there
                for _ in range(4):
                    stream.execute(model, [a], [b])
                    stream.memcpy(y, b)
                    other.execute(model, [a], [b])
                    other.memcpy(z, b)
            await stream
            await other
    runs = sorted((record.start_ns, record.end_ns) for record in sim.timeline() if record.kind == "execute")
    assert len(runs) == 8
    # That the model is shared shows with the second run, when a copy stands behind the first one already.
    assert runs[1][0] - runs[0][1] == 1_000_000
    assert [start - end for (_, end), (start, _) in itertools.pairwise(runs[1:])] == [0] * 6
    assert (y.array == 1).all()
    assert (z.array == 1).all()


async def test_a_shared_model_goes_on_where_there_is_no_event_for_its_runs(
    npu: aa.Device, path: Any, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    async with await npu.load_model(path(COPY)) as model:
        a, b = npu.empty((2, 8)), npu.empty((2, 8))
        await stream.memset(a, 0)
        with sim.hold(device=npu):
            stream.execute(model, [a], [b])
            other.execute(model, [a], [b])  # takes the event it waits for, and one for the next run
            sim.limit_events(1)
            again = other.execute(model, [a], [b])  # on the stream of the last run: needs none, gets none
            with pytest.raises(aa.ResourceError):
                stream.execute(model, [a], [b])
            sim.limit_events(None)
            last = stream.execute(model, [a], [b])
        await again
        await last


async def test_gears_of_batch(npu: aa.Device, path: Any) -> None:
    async with await npu.load_model(path(BATCHES)) as model:
        assert model.gears == {"batch": [1, 4]}
        for batch in (4, 1, 4):
            x = np.arange(batch * 3, dtype="float32").reshape(batch, 3)
            y = await model(x)
            np.testing.assert_array_equal(y, x.sum(axis=1, keepdims=True))
        with pytest.raises(ValueError, match=r"\[1, 4\].*\[2\]"):
            await model(np.zeros((2, 3), "float32"))


async def test_gears_of_size_and_dims(npu: aa.Device, path: Any) -> None:
    async with await npu.load_model(path(SIZES)) as model:
        for shape in ((1, 1, 4, 4), (1, 1, 2, 8)):
            x = np.random.default_rng(0).random(shape, "float32")
            np.testing.assert_array_equal(await model(x), x)
    async with await npu.load_model(path(DIMS)) as model:
        for shape in ((1, 2), (3, 4)):
            x = np.random.default_rng(0).random(shape, "float32")
            np.testing.assert_array_equal(await model(x), x)
        with pytest.raises(ValueError, match="dims"):
            await model(np.zeros((3, 2), "float32"))


async def test_gears_on_device_buffers(npu: aa.Device, path: Any, stream: aa.Stream) -> None:
    async with await npu.load_model(path(BATCHES)) as model:
        x, y = npu.empty((4, 3)), npu.empty((4, 1))
        stream.memcpy(x, np.ones((4, 3), "float32"))
        stream.execute(model, [x], [y])
        host = np.zeros((4, 1), "float32")
        await stream.memcpy(host, y)
        assert (host == 3).all()


async def test_dynamic_shapes(npu: aa.Device, path: Any, sim: Simulator) -> None:
    async with await npu.load_model(path(SHAPES)) as model:
        for shape in ((2, 3), (5, 7), (2, 3), (1, 1)):
            x = np.random.default_rng(0).random(shape, "float32")
            np.testing.assert_array_equal(await model(x), x)
        before = sim.calls("aclmdlExecute")
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(model, np.zeros((2, 3), "float32"))
        assert sim.calls("aclmdlExecute") == before  # known by now: submitted, not run in a thread


async def test_more_first_calls_than_there_are_threads(npu: aa.Device, path: Any) -> None:
    """Those that wait for the first one must not hold the threads that it needs."""
    async with npu.load_model(path(SHAPES)) as model, anyio.create_task_group() as group:
        for count in range(100):
            group.start_soon(model, np.zeros((2, 1 + count % 3), "float32"))


async def test_a_failed_run_raises_its_own_error(npu: aa.Device, path: Any, sim: Simulator) -> None:
    x = np.ones((2, 8), "float32")
    async with await npu.load_model(path(COPY)) as model:
        sim.fail_task(kind="execute", code=507011)
        with pytest.raises(aa.AclError) as caught:
            await model(x)
        assert caught.value.code == 507011
        assert not isinstance(caught.value, aa.DependencyError)
        assert (await model(x) == 1).all()


async def test_the_traceback_of_a_failed_run_begins_with_the_failure(npu: aa.Device, path: Any, sim: Simulator) -> None:
    """Not with how the runtime came across it."""
    async with npu.load_model(path(COPY)) as model:
        await model(np.zeros((2, 8), "float32"))
        sim.fail_task(stream=model.stream, kind="execute")
        with pytest.raises(aa.TaskError) as failed:
            await model(np.zeros((2, 8), "float32"))
        assert "DependencyError" not in "".join(traceback.format_exception(failed.value))


async def test_what_cannot_be_loaded(npu: aa.Device, tmp_path: Path, sim: Simulator) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        await npu.load_model(tmp_path / "missing.om")
    with pytest.raises(IsADirectoryError, match="directory"):
        await npu.load_model(tmp_path)
    broken = tmp_path / "broken.onnx"
    for content in (b"", b"not a model", b"\x08\x07" * 100):
        broken.write_bytes(content)
        with pytest.raises(aa.AclError, match="broken"):
            await npu.load_model(broken)
    with pytest.raises(TypeError, match="int"):
        await npu.load_model(7)  # type: ignore[arg-type]
    assert sim.live("models") == 0


async def test_a_dropped_model_is_unloaded(npu: aa.Device, path: Any, sim: Simulator) -> None:
    model = await npu.load_model(path(COPY))
    await model(np.ones((2, 8), "float32"))
    model_ref = [model]
    del model
    with pytest.warns(ResourceWarning, match="unclosed <Model model.toml on device 0>"):
        model_ref.clear()
    await npu.close()  # waits for what the worker still has to do
    assert sim.live("models") == 0


async def test_a_cancelled_close_can_be_repeated(npu: aa.Device, path: Any, sim: Simulator) -> None:
    model = await npu.load_model(path(COPY))
    x, y = npu.empty((2, 8)), npu.empty((2, 8))
    with sim.hold(model.stream):
        model.execute([x], [y])
        with anyio.move_on_after(0):
            await model.close()
        with pytest.raises(aa.RuntimeClosedError):
            model.execute([x], [y])
    await model.close()
    assert sim.live("models") == 0


async def test_a_model_closed_in_the_middle_of_its_first_run(npu: aa.Device, path: Any, sim: Simulator) -> None:
    model = await npu.load_model(path(SHAPES))
    sim.set_call_latency("aclmdlExecute", 0.2)
    with anyio.move_on_after(0.05):
        await model(np.ones((2, 3), "float32"))  # goes on in its thread
    await model.close()
    assert sim.live("models") == 0
    with pytest.raises(aa.RuntimeClosedError):
        await model(np.ones((2, 3), "float32"))


async def test_a_waiting_run_does_not_stop_the_loop_or_other_models(
    npu: aa.Device, path: Any, sim: Simulator, stream: aa.Stream
) -> None:
    sim.set_call_latency("aclmdlExecute", 0.3)
    slow, quick = await npu.load_model(path(SHAPES)), await npu.load_model(path(COPY, "other.toml"))
    async with slow, quick, anyio.create_task_group() as group:
        group.start_soon(slow, np.ones((4, 4), "float32"))
        await anyio.to_thread.run_sync(lambda: None)
        x, y = npu.empty((4, 4)), npu.empty((4, 4))
        stream.memcpy(x, np.ones((4, 4), "float32"))
        run = slow.execute([x], [y], stream=stream)  # waits for the other one on the host
        for _ in range(5):
            assert (await quick(np.ones((2, 8), "float32")) == 1).all()
        await run
