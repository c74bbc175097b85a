# SPDX-License-Identifier: Apache-2.0
"""What goes into a model and comes out: names, shapes, dtypes, and the checks of what a caller gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aioascend import _native

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
    names = [info.name for info in infos]
    expected = f"it takes {len(names)}: {', '.join(names)}"
    if len(args) > len(names):
        raise TypeError(f"model {label} was given {len(args)} inputs, {expected}")
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
    """The array for an input: arrays must fit as they are, lists and scalars are converted."""
    if isinstance(value, _native.DeviceBuffer):
        raise TypeError(
            f"input {info.name!r} of model {label} is a DeviceBuffer; call model.execute(...) to run on device buffers"
        )
    if isinstance(value, np.ndarray) or hasattr(value, "__array__"):
        array = np.asarray(value)
    else:
        try:
            if value is None:
                raise TypeError("it is None")
            array = np.asarray(value, dtype=info.dtype)
        except (TypeError, ValueError) as error:
            raise TypeError(f"input {info.name!r} of model {label} cannot be made an array: {error}") from None
    check_tensor(label, info, array.shape, array.dtype)
    if not array.dtype.isnative:
        raise TypeError(
            f"input {info.name!r} of model {label} has foreign byte order; convert with astype({info.dtype})"
        )
    return np.ascontiguousarray(array)
