# SPDX-License-Identifier: Apache-2.0
"""What a batch is made of, given to and split into: for models, and for asynchronous functions."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aioascend._arguments import whole
from aioascend._words import counted
from aioascend.errors import DependencyError
from aioascend.model import Model
from aioascend.tensors import TensorInfo, as_input, bind_arguments

__all__ = ["MOST", "FunctionTarget", "HookError", "ModelTarget", "Target", "by_shape", "sizes_of"]

MOST = 1_000_000
Collate = Callable[[list[Any]], Any]
Split = Callable[[Any, int], Sequence[Any]]
Bucket = Callable[[Any], Hashable]


class HookError(Exception):
    """Carries what `collate` or `split` has raised, its `__cause__`."""


def by_shape(item: Any) -> Hashable:
    """A bucket for each shape: of the array, or of all arrays in a tuple, list or dict. For `Batcher(bucket=...)`.

    Raises:
        TypeError: there is something without a shape in it.
    """
    if isinstance(item, Mapping):
        return tuple((name, by_shape(value)) for name, value in sorted(item.items()))
    if isinstance(item, (tuple, list)):
        return tuple(map(by_shape, item))
    if not hasattr(item, "shape"):
        raise TypeError(
            f"by_shape is for arrays, and tuples, lists and dicts of them; {type(item).__name__} has no shape"
        )
    return tuple(item.shape)


class _Lengths:
    """Pads the first axis of arrays to the next of some lengths."""

    def __init__(self, lengths: Sequence[object]) -> None:
        self._lengths = sorted({whole("a length of bucket", length, 1, 2**31 - 1, "a length") for length in lengths})
        if not self._lengths:
            raise ValueError("bucket is an empty list; give the lengths to pad to, a function, or nothing")

    def of(self, longest: int) -> int:
        for length in self._lengths:
            if longest <= length:
                return length
        raise ValueError(f"the item is {longest} long, and the longest of bucket is {self._lengths[-1]}; cut it")

    @staticmethod
    def padded(array: NDArray[Any], length: int) -> NDArray[Any]:
        result = np.zeros((length, *array.shape[1:]), array.dtype)
        result[: len(array)] = array
        return result


class Target:
    """What a batcher calls, and what is done on the host before and after.

    Attributes:
        padded_rows: How many rows have been added so far to reach an allowed size.
        lanes: How many batches it begins with at once, while nothing else is under way.
        one_at_a_time: Whether further ones wait for that, so that nothing is won by giving them to it early.
    """

    lanes = 1
    one_at_a_time = False

    def __init__(
        self, name: str, sizes: Sequence[int], bucket: object, collate: Collate | None, split: Split | None
    ) -> None:
        for hook, function in (("collate", collate), ("split", split)):
            if function is not None and not callable(function):
                raise TypeError(f"{hook} must be a function, not {function!r}")
        self.name = name
        self.padded_rows = 0
        self._sizes = sizes
        self._collate = collate
        self._split = split
        self._bucket: Bucket | None = bucket if callable(bucket) else None
        self._lengths: _Lengths | None = None
        if isinstance(bucket, (list, tuple, range)):
            self._lengths = _Lengths(bucket)
        elif bucket is not None and self._bucket is None:
            raise TypeError(f"bucket must be a function of an item, or a list of lengths, not {bucket!r}")

    def admit(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, Hashable]:
        """The item, and its bucket. Raises what is wrong with it."""
        raise NotImplementedError

    async def rows(self, items: list[Any]) -> Sequence[Any]:
        """One result for each item. What hooks raise comes as a `HookError`."""
        size = next((size for size in self._sizes if size >= len(items)), len(items))
        self.padded_rows += size - len(items)
        given = self._collated(items + items[-1:] * (size - len(items)))
        output = await self._call(given)
        return self._results(output, size)[: len(items)]

    def _one(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> Any:
        if len(inputs) != 1 or named:
            given = ", ".join([counted(len(inputs), "item"), *map(repr, named)])
            raise TypeError(f"{self.name} takes one item a call, not {given}; put several values into a tuple")
        return inputs[0]

    def _key(self, item: Any) -> Hashable:
        if self._bucket is None:
            return None
        key = self._bucket(item)
        try:
            hash(key)
        except TypeError:
            raise TypeError(
                f"bucket returned {key!r}, which cannot be hashed; return text, numbers or tuples"
            ) from None
        return key

    def _collated(self, items: list[Any]) -> Any:
        try:
            return self._stack(items) if self._collate is None else self._collate(items)
        except Exception as error:
            raise HookError from error

    def _results(self, output: Any, count: int) -> Sequence[Any]:
        try:
            rows = self._unstack(output, count) if self._split is None else self._split(output, count)
        except Exception as error:
            raise HookError from error
        whence = f"split of {self.name}" if self._split else self.name
        is_array = isinstance(rows, np.ndarray) and rows.ndim > 0
        if not is_array and (not isinstance(rows, Sequence) or isinstance(rows, (str, bytes))):
            raise RuntimeError(f"{whence} returned {type(rows).__name__}, not a sequence with a result for each item")
        if len(rows) != count:
            raise RuntimeError(f"{whence} returned {counted(len(rows), 'result')} for {counted(count, 'item')}")
        return list(rows)

    def _stack(self, items: list[Any]) -> Any:
        raise NotImplementedError

    def _unstack(self, output: Any, count: int) -> Any:
        raise NotImplementedError

    async def _call(self, given: Any) -> Any:
        raise NotImplementedError


class FunctionTarget(Target):
    """An `async def f(items)` that returns a result for each item."""

    def __init__(
        self,
        function: Callable[[Any], Awaitable[Any]],
        name: str,
        sizes: Sequence[int],
        bucket: object,
        collate: Collate | None,
        split: Split | None,
    ) -> None:
        super().__init__(name, sizes, bucket, collate, split)
        self._function = function

    def admit(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, Hashable]:
        item = self._one(inputs, named)
        if self._lengths is None:
            return item, self._key(item)
        if not isinstance(item, np.ndarray) or item.ndim == 0:
            raise TypeError(f"bucket is a list of lengths, which pads numpy arrays, not {type(item).__name__}")
        padded = self._lengths.padded(item, self._lengths.of(len(item)))
        return padded, padded.shape

    def _stack(self, items: list[Any]) -> Any:
        return items

    def _unstack(self, output: Any, count: int) -> Any:
        return output

    async def _call(self, given: Any) -> Any:
        output = self._function(given)
        if not inspect.isawaitable(output):
            raise RuntimeError(f"{self.name} is not an async function: it returned {type(output).__name__}")
        return await output


class ModelTarget(Target):
    """A model whose inputs and outputs have the batch as their first axis."""

    def __init__(
        self,
        model: Model,
        name: str,
        sizes: Sequence[int],
        bucket: object,
        collate: Collate | None,
        split: Split | None,
    ) -> None:
        super().__init__(name, sizes, bucket, collate, split)
        self._model = model
        self.lanes = len(model.streams)
        self.one_at_a_time = self.lanes == 1
        self._row_infos = [TensorInfo(info.name, info.shape[1:], info.dtype) for info in model.input_infos]
        self._check_axes(() if collate else model.input_infos, "input", "collate")
        self._check_axes(() if split else model.output_infos, "output", "split")
        self._of_open_length = [info.shape[:1] == (-1,) for info in self._row_infos]
        self._open = any(-1 in info.shape for info in self._row_infos)
        if self._lengths is not None:
            if collate:
                raise ValueError("bucket is a list of lengths, which pads inputs; with collate, pad them there")
            if not any(self._of_open_length):
                raise ValueError(f"no input of {self.name} is of open length; bucket must not be a list of lengths")

    def _check_axes(self, infos: Sequence[TensorInfo], what: str, hook: str) -> None:
        batch = self._model.input_infos[0].shape[0]
        for info in infos:
            first = info.shape[0] if info.shape else None
            if first is None or (-1 not in (first, batch) and first != batch):
                raise ValueError(
                    f"{what} {info.name!r} of {self.name} has shape {info.shape}, whose first axis is not the batch; "
                    f"give {hook}"
                )

    def admit(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, Hashable]:
        if self._collate is not None:
            item = self._one(inputs, named)
            return item, self._key(item)
        if len(inputs) == 1 and not named and isinstance(inputs[0], Mapping):
            named = inputs[0]
            inputs = ()
        values = bind_arguments(self.name, self._row_infos, inputs, named)
        label = f"{self.name}, without the axis of the batch,"
        rows = [as_input(label, info, value) for info, value in zip(self._row_infos, values, strict=True)]
        if self._lengths is not None:
            rows = self._padded(rows, self._lengths)
        item = rows[0] if len(rows) == 1 else tuple(rows)
        return item, (self._key(item), by_shape(item)) if self._open else self._key(item)

    def _padded(self, rows: list[NDArray[Any]], lengths: _Lengths) -> list[NDArray[Any]]:
        which = list(zip(rows, self._of_open_length, strict=True))
        length = lengths.of(max(len(row) for row, is_open in which if is_open))
        return [lengths.padded(row, length) if is_open else row for row, is_open in which]

    def _stack(self, items: list[Any]) -> Any:
        if len(self._row_infos) == 1:
            return np.stack(items)
        return tuple(np.stack(column) for column in zip(*items, strict=True))

    def _unstack(self, output: Any, count: int) -> Any:
        if not isinstance(output, tuple):
            return output
        wrong = [array for array in output if len(array) != count]
        return wrong[0] if wrong else list(zip(*output, strict=True))  # the wrong one, to be told of

    async def _call(self, given: Any) -> Any:
        named = given if isinstance(given, Mapping) else {}
        args = () if named else given if isinstance(given, tuple) else (given,)
        try:
            return await self._model(*args, **named)
        except DependencyError as error:
            if error.retry != "retry":
                raise
        return await self._model(*args, **named)  # another batch had failed in front of this one


def sizes_of(target: object, name: str, given: object, max_batch: object) -> tuple[tuple[int, ...], int]:
    """The sizes that batches may have, ascending, none if any; and the largest one that is built."""
    allowed = _model_sizes(target) if isinstance(target, Model) else None
    if given is None:
        sizes = allowed or ()
    elif isinstance(given, (list, tuple, range)):
        sizes = tuple(sorted({whole("a size of sizes", size, 1, MOST, "a batch size") for size in given}))
        if not sizes:
            raise ValueError("sizes is empty; give the batch sizes that are allowed, or leave it out")
        if allowed and (unknown := sorted(set(sizes) - set(allowed))):
            raise ValueError(f"{name} runs batches of {list(allowed)}, not of {unknown}; take these out of sizes")
    else:
        raise TypeError(f"sizes must be a list of batch sizes, not {given!r}")
    if not sizes and isinstance(target, Model) and target.gears:
        raise ValueError(f"{name} is compiled for {target.gears}; give sizes, the batch sizes that are in there")
    if max_batch is None:
        if not sizes:
            raise TypeError(f"{name} takes batches of any size; give max_batch")
        return sizes, sizes[-1]
    most = whole("max_batch", max_batch, 1, MOST, "a batch size")
    if sizes and most > sizes[-1]:
        raise ValueError(
            f"max_batch is {most}, and the largest batch that {name} runs is {sizes[-1]}; give a smaller one, "
            "or a model that is compiled for larger ones"
        )
    return sizes, most


def _model_sizes(model: Model) -> tuple[int, ...] | None:
    if "batch" in model.gears:
        return tuple(sorted(model.gears["batch"]))
    if not model.input_infos or not model.input_infos[0].shape:
        raise ValueError(f"model {model.name} has no first axis that could be the batch")
    first = model.input_infos[0].shape[0]
    return None if first == -1 else (first,)
