# SPDX-License-Identifier: Apache-2.0
"""Batches of models: stacking, allowed sizes, buckets, checks before anything is queued, failures on the device."""

from __future__ import annotations

from typing import Any

import anyio
import numpy as np
import pytest

import aioascend as aa
from aioascend.testing import Simulator
from compose.batching import check_books, quiet

pytestmark = pytest.mark.anyio


def sums(batch: int, more: str = "") -> bytes:
    """Adds up each row."""
    return f"""
name = "sums"
{more}
[[inputs]]
name = "x"
shape = [{batch}, 4]
[[outputs]]
name = "y"
shape = [{batch}, 2]
fill = "sum"
""".encode()


GEARS = sums(-1, "dynamic_batch = [1, 4, 8]")
OPEN = b"""
name = "lengths"
[[inputs]]
name = "ids"
shape = [-1, -1]
dtype = "int32"
[[inputs]]
name = "mask"
shape = [-1, -1]
dtype = "uint8"
[[inputs]]
name = "scale"
shape = [-1, 3]
[[outputs]]
name = "total"
shape = [-1, 1]
fill = "sum"
from = "ids"
dtype = "int32"
[[outputs]]
name = "scaled"
shape = [-1, 3]
fill = "copy"
from = "scale"
"""


def row(number: int) -> Any:
    return np.full(4, number, "float32")


class Watched:
    """Requests to a batcher of `sums`, and the sizes of the batches the device has seen."""

    def __init__(self, batcher: aa.Batcher, sim: Simulator) -> None:
        self.batcher = batcher
        self.sim = sim
        self.answers: dict[int, Any] = {}

    async def request(self, number: int) -> None:
        try:
            self.answers[number] = await self.batcher(row(number))
        except aa.AioascendError as error:
            self.answers[number] = error

    async def all(self, *numbers: int) -> None:
        async with anyio.create_task_group() as group:
            for number in numbers:
                group.start_soon(self.request, number)

    def right(self, *numbers: int) -> bool:
        return all(np.array_equal(self.answers[number], [4 * number] * 2) for number in numbers)

    @property
    def bytes_in(self) -> list[int]:
        return [record.nbytes for record in self.sim.timeline() if record.kind == "memcpy_h2d"]


async def test_a_static_model_is_always_given_full_batches(npu: aa.Device, sim: Simulator) -> None:
    async with npu.load_model(sums(4), name="sums") as model, aa.Batcher(model) as batcher:
        watched = Watched(batcher, sim)
        await watched.all(*range(6))
        assert watched.right(*range(6))
        assert watched.bytes_in == [4 * 16] * 2
        assert watched.answers[0].shape == (2,)
        check_books(batcher, batches=2, rows=6, padded_rows=2)


async def test_a_model_with_gears_is_given_the_next_one(npu: aa.Device, sim: Simulator) -> None:
    async with npu.load_model(GEARS) as model, aa.Batcher(model, max_delay=1000) as batcher:
        watched = Watched(batcher, sim)
        for count in (1, 3, 4, 5, 8):
            await watched.all(*range(count))
            assert watched.right(*range(count))
        check_books(batcher, rows=21, padded_rows=0 + 1 + 0 + 3 + 0, ok=21)
    async with npu.load_model(GEARS) as model, aa.Batcher(model, max_batch=4, sizes=[4, 8]) as batcher:
        watched = Watched(batcher, sim)
        await watched.all(*range(9))
        assert watched.right(*range(9))
        check_books(batcher, rows=9, batches=3, padded_rows=3)


async def test_a_model_that_takes_any_batch_is_given_no_padding(npu: aa.Device, sim: Simulator) -> None:
    async with npu.load_model(sums(-1), name="sums") as model, aa.Batcher(model, max_batch=4) as batcher:
        watched = Watched(batcher, sim)
        await watched.all(*range(7))
        assert watched.right(*range(7))
        assert sorted(watched.bytes_in) == [3 * 16, 4 * 16]
        check_books(batcher, padded_rows=0)


async def test_several_inputs_and_outputs_go_by_place_by_name_and_as_a_dict(npu: aa.Device) -> None:
    async with npu.load_model(OPEN) as model, aa.Batcher(model, max_batch=4) as batcher:
        ids, mask, scale = np.arange(5, dtype="int32"), np.ones(5, "uint8"), np.arange(3, dtype="float32")
        answers: list[Any] = []

        async def request(*args: Any, **named: Any) -> None:
            answers.append(await batcher(*args, **named))

        async with anyio.create_task_group() as group:
            group.start_soon(request, ids, mask, scale)
            group.start_soon(lambda: request(ids, scale=scale, mask=mask))
            group.start_soon(request, {"mask": mask, "scale": scale, "ids": ids})
        assert len(answers) == 3
        for total, scaled in answers:
            assert total == [10]
            assert (scaled == scale).all()
        check_books(batcher, batches=1, ok=3)


async def test_only_what_has_one_shape_shares_a_batch(npu: aa.Device, sim: Simulator) -> None:
    async with npu.load_model(OPEN) as model, aa.Batcher(model, max_batch=8, max_delay=1000) as batcher:
        totals: dict[int, Any] = {}

        async def request(length: int) -> None:
            ids = np.full(length % 3 + 1, length, "int32")
            totals[length], _ = await batcher(ids, np.ones(len(ids), "uint8"), np.zeros(3, "float32"))

        async with anyio.create_task_group() as group:
            for length in range(12):
                group.start_soon(request, length)
        assert {length: total[0] for length, total in totals.items()} == {n: n * (n % 3 + 1) for n in range(12)}
        check_books(batcher, batches=3, rows=12)


async def test_lengths_are_padded_to_the_next_of_a_list(npu: aa.Device, sim: Simulator) -> None:
    model = npu.load_model(OPEN)
    async with model as loaded, aa.Batcher(loaded, max_batch=8, max_delay=1000, bucket=[4, 16]) as batcher:
        totals: dict[int, Any] = {}

        async def request(length: int) -> None:
            ids = np.full(length, length, "int32")
            totals[length], _ = await batcher(ids, np.ones(length, "uint8"), np.zeros(3, "float32"))

        async with anyio.create_task_group() as group:
            for length in range(1, 17):
                group.start_soon(request, length)
        assert {length: total[0] for length, total in totals.items()} == {n: n * n for n in range(1, 17)}
        check_books(batcher, batches=1 + 2, rows=16)
        with pytest.raises(ValueError, match="the item is 17 long, and the longest of bucket is 16"):
            await request(17)


async def test_a_function_gets_arrays_that_are_padded() -> None:
    seen: list[Any] = []

    async def function(items: list[Any]) -> list[Any]:
        seen.append(np.stack(items))
        return [item.sum() for item in items]

    async with aa.Batcher(function, max_batch=4, bucket=[2, 4]) as batcher:
        assert await batcher(np.ones(3)) == 3
        assert seen[0].tolist() == [[1, 1, 1, 0]]
        with pytest.raises(TypeError, match="pads numpy arrays, not list"):
            await batcher([1, 2])


async def test_hooks_of_a_model_make_its_inputs_and_take_its_outputs_apart(npu: aa.Device) -> None:
    def collate(texts: list[str]) -> dict[str, Any]:
        return {"x": np.array([[float(len(text))] * 4 for text in texts], "float32")}

    def split(output: Any, count: int) -> list[str]:
        assert len(output) == count == 4
        return [f"{value:g}" for value in output[:, 0]]

    async with npu.load_model(sums(4), name="sums") as model:
        async with aa.Batcher(model, collate=collate, split=split, max_delay=1000) as batcher:
            answers: dict[str, str] = {}

            async def request(text: str) -> None:
                answers[text] = await batcher(text)

            async with anyio.create_task_group() as group:
                for text in ("a", "bb", "ccc"):
                    group.start_soon(request, text)
        assert answers == {"a": "4", "bb": "8", "ccc": "12"}
        async with aa.Batcher(model, collate=lambda items: np.ones((4, 4), "float32")) as batcher:
            assert (await batcher("whatever") == [4, 4]).all()
            with pytest.raises(TypeError, match="sums takes one item a call, not 2 items"):
                await batcher(1, 2)


async def test_what_does_not_fit_the_model_is_refused_before_it_is_queued(npu: aa.Device, sim: Simulator) -> None:
    async with npu.load_model(sums(4), name="sums") as model, aa.Batcher(model, max_delay=1000) as batcher:
        watched = Watched(batcher, sim)

        async def bad() -> None:
            with pytest.raises(ValueError, match=r"without the axis of the batch, must have shape \(4\), not \(1, 4\)"):
                await batcher(np.ones((1, 4), "float32"))
            with pytest.raises(TypeError, match="must be float32, not float64"):
                await batcher(np.ones(4))
            with pytest.raises(TypeError, match="has no input 'z'"):
                await batcher(z=row(1))
            with pytest.raises(TypeError, match="was given 2 inputs"):
                await batcher(row(1), row(2))
            with pytest.raises(TypeError, match="priority must be a whole number"):
                await batcher(row(1), priority="high")  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="timeout must be a number of seconds"):
                await batcher(row(1), timeout=0)

        async with anyio.create_task_group() as group:
            group.start_soon(watched.all, 1, 2)
            group.start_soon(bad)
            group.start_soon(watched.all, 3, 4)
        assert watched.right(1, 2, 3, 4)
        check_books(batcher, submitted=4)


async def test_a_failure_on_the_device_is_that_of_one_batch(npu: aa.Device, sim: Simulator) -> None:
    async with npu.load_model(sums(4), name="sums") as model, aa.Batcher(model, max_delay=1000) as batcher:
        watched = Watched(batcher, sim)
        await watched.all(*range(4))
        sim.fail_task(kind="execute", nth=2, code=507014)
        await watched.all(*range(20))
        failed = [number for number, answer in watched.answers.items() if isinstance(answer, aa.AclError)]
        assert len(failed) == 4  # what was queued behind it on the stream has been run again
        assert {watched.answers[number].code for number in failed} == {507014}
        assert len({str(watched.answers[number]) for number in failed}) == 1
        await watched.all(*range(20, 25))
        assert watched.right(*(set(range(25)) - set(failed)))
        check_books(batcher, ok=25 - 4 + 4, failed=4, waiting=0, running=0, in_flight=0)


async def test_when_an_input_is_at_fault_the_others_are_run_again(npu: aa.Device, sim: Simulator) -> None:
    async with npu.load_model(sums(4), name="sums") as model, aa.Batcher(model, max_delay=1000) as batcher:
        watched = Watched(batcher, sim)
        await watched.all(0)
        sim.fail_task(kind="execute", code=507015)  # of which a bad input may be the cause
        await watched.all(1, 2, 3, 4)
        assert watched.right(1, 2, 3, 4)
        check_books(batcher, ok=5, isolated=4, padded_rows=3 + 4 * 3)


async def test_who_is_cancelled_before_is_not_on_the_device(npu: aa.Device, sim: Simulator) -> None:
    async with npu.load_model(GEARS) as model, aa.Batcher(model, max_delay=1000, concurrency=1) as batcher:
        sums_ = Watched(batcher, sim)
        await sums_.all(0)
        with sim.hold(model.stream):
            async with anyio.create_task_group() as group:
                group.start_soon(sums_.request, 100)
                await quiet()
                scopes = [anyio.CancelScope() for _ in range(8)]

                async def request(number: int) -> None:
                    with scopes[number]:
                        await sums_.request(number)

                for number in range(8):
                    group.start_soon(request, number)
                await quiet()
                for number in (2, 5, 7):
                    scopes[number].cancel()
                await quiet()
                sim.release(model.stream)
        assert sums_.right(0, 1, 3, 4, 6, 100)
        check_books(batcher, cancelled=3, ok=7, rows=7, padded_rows=3)


async def test_a_lost_device_is_told_to_everybody(npu: aa.Device, sim: Simulator) -> None:
    async with npu.load_model(sums(4), name="sums") as model, aa.Batcher(model, max_delay=1000) as batcher:
        watched = Watched(batcher, sim)
        await watched.all(*range(4))
        sim.lose_device(npu)
        await watched.all(*range(20))
        assert {type(answer) for answer in watched.answers.values()} == {aa.DeviceLostError}
        sim.restore_device(npu)
        await npu.reset()
        await watched.all(1)
        assert isinstance(watched.answers[1], aa.RuntimeClosedError)


async def test_a_closed_model_is_told_to_callers(npu: aa.Device) -> None:
    async with npu.load_model(sums(4), name="sums") as model, aa.Batcher(model) as batcher:
        await model.close()
        with pytest.raises(aa.RuntimeClosedError, match="sums"):
            await batcher(row(1))


# --- what is refused when a batcher is made ---


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({}, TypeError, "takes batches of any size; give max_batch"),
        ({"max_batch": 0}, ValueError, "max_batch must be a batch size, 1 to 1000000, not 0"),
        ({"max_batch": 2.5}, TypeError, "max_batch must be"),
        ({"max_batch": 9, "sizes": [4, 8]}, ValueError, "max_batch is 9, and the largest batch that .* runs is 8"),
        ({"sizes": []}, ValueError, "sizes is empty"),
        ({"sizes": 4}, TypeError, "sizes must be a list of batch sizes, not 4"),
        ({"sizes": [0]}, ValueError, "a size of sizes must be"),
        ({"max_batch": 4, "max_delay": -1}, ValueError, "max_delay must be a number of seconds"),
        ({"max_batch": 4, "max_delay": "1"}, TypeError, "max_delay must be a number of seconds"),
        ({"max_batch": 4, "concurrency": 0}, ValueError, "concurrency must be"),
        ({"max_batch": 4, "queue_limit": 0}, ValueError, "queue_limit must be"),
        ({"max_batch": 4, "overflow": "drop"}, ValueError, "overflow must be 'wait' or 'reject', not 'drop'"),
        ({"max_batch": 4, "ageing": 0}, ValueError, "ageing must be"),
        ({"max_batch": 4, "collate": 1}, TypeError, "collate must be a function, not 1"),
        ({"max_batch": 4, "split": 1}, TypeError, "split must be a function, not 1"),
        ({"max_batch": 4, "bucket": 7}, TypeError, "bucket must be a function of an item, or a list of lengths"),
        ({"max_batch": 4, "bucket": []}, ValueError, "bucket is an empty list"),
        ({"max_batch": 4, "bucket": [0]}, ValueError, "a length of bucket must be"),
        ({"max_batch": 4, "name": 7}, TypeError, "name must be text, not 7"),
    ],
)
def test_options_that_make_no_sense(options: Any, error: type[Exception], told: str) -> None:
    async def function(items: list[int]) -> list[int]:
        return items

    with pytest.raises(error, match=told):
        aa.Batcher(function, **options)


async def test_models_that_cannot_be_batched_as_asked(npu: aa.Device) -> None:
    with pytest.raises(TypeError, match=r"calls a Model or an async function, not 'detect\.om'"):
        aa.Batcher("detect.om")  # type: ignore[call-overload]
    async with npu.load_model(sums(4), name="sums") as model:
        with pytest.raises(ValueError, match="max_batch is 8, and the largest batch that sums runs is 4"):
            aa.Batcher(model, max_batch=8)
        with pytest.raises(ValueError, match=r"sums runs batches of \[4\], not of \[2\]"):
            aa.Batcher(model, sizes=[2, 4])
        with pytest.raises(ValueError, match="no input of sums is of open length"):
            aa.Batcher(model, bucket=[8])
        with pytest.raises(ValueError, match="with collate, pad them there"):
            aa.Batcher(model, bucket=[8], collate=np.stack)
    async with npu.load_model(sums(4).replace(b"[4, 2]", b"[3, 2]"), name="sums") as model:
        with pytest.raises(
            ValueError, match=r"output 'y' of sums has shape \(3, 2\), whose first axis is not the batch"
        ):
            aa.Batcher(model)
    dims = sums(-1, "dynamic_dims = [[1], [4]]")
    async with npu.load_model(dims) as model:
        with pytest.raises(ValueError, match=r"is compiled for .*; give sizes"):
            aa.Batcher(model)
        async with aa.Batcher(model, sizes=[1, 4]) as batcher:
            assert (await batcher(row(1)) == [4, 4]).all()


async def test_a_batcher_is_used_inside_its_block_in_its_own_thread() -> None:
    async def function(items: list[int]) -> list[int]:
        return items

    def not_async(items: list[int]) -> list[int]:
        return items

    batcher = aa.Batcher(function, max_batch=4, name="mine")
    with pytest.raises(RuntimeError, match=r"mine: .* has not been entered"):
        await batcher(1)
    async with batcher:
        with pytest.raises(TypeError, match="mine takes one item a call, not 2 items"):
            await batcher(1, 2)
        with pytest.raises(RuntimeError, match="has been entered before"):
            await batcher.__aenter__()

        async def elsewhere() -> None:
            await batcher(1)

        with pytest.raises(RuntimeError, match="belongs to the event loop that has entered it"):
            await anyio.to_thread.run_sync(anyio.run, elsewhere)
    with pytest.raises(aa.RuntimeClosedError, match=r"mine: .* is closed"):
        await batcher(1)
    unused = aa.Batcher(function, max_batch=4)
    await unused.close()
    assert unused.closed
    with pytest.raises(aa.RuntimeClosedError, match="is closed"):
        await unused(1)
    with pytest.raises(RuntimeError, match="has been entered before, or closed"):
        await unused.__aenter__()
    async with aa.Batcher(not_async, max_batch=4) as wrong:  # type: ignore[arg-type]
        with pytest.raises(RuntimeError, match="not_async is not an async function: it returned list"):
            await wrong(1)
    async with aa.Batcher(function, max_batch=4, bucket=lambda item: [item]) as unhashable:
        with pytest.raises(TypeError, match=r"bucket returned \[1\], which cannot be hashed"):
            await unhashable(1)


async def test_items_of_a_function_by_shape() -> None:
    gathered: list[int] = []

    async def function(items: list[Any]) -> list[Any]:
        gathered.append(len(items))
        return items

    async with aa.Batcher(function, max_batch=8, max_delay=1000, bucket=aa.by_shape) as batcher:
        async with anyio.create_task_group() as group:
            for number in range(12):
                array = np.zeros(number % 2 + 1)
                group.start_soon(batcher, ({"a": array, "b": array}, [array])[number % 4 // 2])
        assert sorted(gathered) == [3, 3, 3, 3]
        with pytest.raises(TypeError, match="int has no shape"):
            await batcher(1)
