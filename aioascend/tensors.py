# SPDX-License-Identifier: Apache-2.0
"""What goes into a model and comes out: names, shapes, dtypes, and the checks of what a caller gives."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from aioascend import _native
from aioascend._words import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TensorInfo"]

_DTYPES = {
    0: "float32",
    1: "float16",
    2: "int8",
    3: "int32",
    4: "uint8",
    6: "int16",
    7: "uint16",
    8: "uint32",
    9: "int64",
    10: "uint64",
    11: "float64",
    12: "bool",
    16: "complex64",
    17: "complex128",
}
_BFLOAT16 = 27


@dataclass(frozen=True)
class TensorInfo:
    """An input or output of a model.

    Attributes:
        name: Its name in the model.
        shape: Extents; -1 where the model leaves one open.
        dtype: The numpy dtype.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def accepts(self, shape: Sequence[int]) -> bool:
        """Whether an array of this shape fits."""
        return len(shape) == len(self.shape) and all(
            want in (-1, got) for want, got in zip(self.shape, shape, strict=True)
        )


def dtype_of(acl_type: int, what: str) -> np.dtype[Any]:
    """The numpy dtype of an aclDataType."""
    if acl_type == _BFLOAT16:
        try:
            import ml_dtypes
        except ImportError:
            raise TypeError(f"{what} is bfloat16, which numpy gets from ml_dtypes: pip install ml_dtypes") from None
        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    if acl_type not in _DTYPES:
        raise TypeError(f"{what} has aclDataType {acl_type}, which numpy has no dtype for")
    return np.dtype(_DTYPES[acl_type])


def bind_arguments(
    label: str, infos: Sequence[TensorInfo], args: Sequence[object], kwargs: Mapping[str, object]
) -> list[object]:
    """One value per input, from positional and named ones."""
    if len(args) == len(infos) and not kwargs:
        return list(args)  # also where two inputs have the same name
    names = [info.name for info in infos]
    expected = f"it takes {len(names)}: {', '.join(names)}"
    if len(args) > len(names):
        raise TypeError(f"model {label} was given {counted(len(args), 'input')}, {expected}")
    values: dict[str, object] = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names:
            raise TypeError(f"model {label} has no input {name!r}, {expected}")
        if name in values:
            raise TypeError(f"model {label} was given input {name!r} twice")
        values[name] = value
    if missing := [name for name in names if name not in values]:
        raise TypeError(f"model {label} was not given {', '.join(map(repr, missing))}, {expected}")
    return [values[name] for name in names]


def check_tensor(label: str, info: TensorInfo, shape: Sequence[int], dtype: np.dtype[Any], what: str = "input") -> None:
    """Raises what tells the caller which tensor does not fit, and how."""
    if dtype != info.dtype:
        raise TypeError(f"{what} {info.name!r} of model {label} must be {info.dtype}, not {dtype}; convert with astype")
    if not info.accepts(shape):
        wanted = ", ".join("any" if extent == -1 else str(extent) for extent in info.shape)
        raise ValueError(f"{what} {info.name!r} of model {label} must have shape ({wanted}), not {tuple(shape)}")


def as_input(label: str, info: TensorInfo, value: object) -> NDArray[Any]:
    """The array for an input: arrays, and what has a buffer, must fit as they are; lists and numbers are converted."""
    what = f"input {info.name!r} of model {label}"
    if isinstance(value, _native.DeviceBuffer):
        raise TypeError(f"{what} is a DeviceBuffer; call model.execute(...) to run on device buffers")
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{what} is a masked array, and a device knows no masks; give filled(...) of it")
    try:
        if hasattr(value, "__array__") or _has_buffer(value):
            array = np.asarray(value, order="C")
        else:
            array = _converted(value, info.dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{what} cannot be made an array of {info.dtype}: {error}") from None
    check_tensor(label, info, array.shape, array.dtype)
    return array


def _has_buffer(value: object) -> bool:
    try:
        memoryview(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def _converted(value: object, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Lists and numbers as an array. Digits may be lost, but 1.5 is no integer, 300 no byte, and 1e300 no float32."""
    given = np.asarray(value)
    is_complex = dtype.kind == "c"
    kinds = (numbers.Complex, Decimal) if is_complex else (numbers.Real, Decimal)
    if given.dtype.kind in "SUMm" or not all(isinstance(item, kinds) for item in _objects_in(given)):
        raise TypeError(f"it holds something else than numbers: {_shortened(value)}")
    if given.dtype.kind == "c" and not is_complex:
        raise TypeError(f"it holds complex numbers: {_shortened(value)}")
    whole = dtype.kind in "biu"
    if given.dtype.kind == "O" and not whole:  # fractions and the like, which not every dtype takes
        given = given.astype(np.complex128 if is_complex else np.float64)
    with np.errstate(all="ignore"):  # looked at below
        array = given.astype(dtype)
        lost = given != array if whole else np.isfinite(given.astype(np.complex128)) & ~np.isfinite(array)
    if lost.any():
        raise ValueError(f"{given[lost].flat[0]} does not fit")
    return np.asarray(array, order="C")


def _objects_in(array: NDArray[Any]) -> Iterable[object]:
    return array.flat if array.dtype.kind == "O" else ()


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
