# SPDX-License-Identifier: Apache-2.0
"""What callers give, numbers, files and arguments of commands: checked before anything is done with it."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


def whole(name: str, value: object, least: int, most: int, what: str) -> int:
    """The integer; a `TypeError` or `ValueError` that says what was expected otherwise. A bool is none."""
    problem = f"{name} must be {what}, {least} to {most}, not {value!r}"
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(problem)
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(problem) from None
    if not least <= number <= most:
        raise ValueError(problem)
    return number


def seconds(name: str, value: object, most: float = 1e9, *, zero: bool = False) -> float:
    """A duration above 0, or with `zero` from 0; a `TypeError` or `ValueError` that says so otherwise. NaN is none."""
    problem = f"{name} must be a number of seconds {'from' if zero else 'above'} 0 and below {most:g}, not {value!r}"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise TypeError(problem)
    number: Any = value  # compared as it is: not every integer can be made a float
    if not 0 <= number < most or (number == 0 and not zero):
        raise ValueError(problem)
    return float(number)


def check_file(option: str, path: Path, suffixes: Sequence[str] = ()) -> None:
    """That a file can be written, as far as that is known before; a `ValueError` that says why not otherwise.

    A file that is there is left as it is, and none is left behind.
    """
    try:
        problem = _problem_of(path, suffixes)
    except OSError as error:
        problem = str(error.strerror)
    if problem:
        raise ValueError(f"{option} {path}: {problem}")


def _problem_of(path: Path, suffixes: Sequence[str]) -> str:
    if suffixes and path.suffix not in suffixes:
        return f"it must end in {' or '.join(suffixes)}"
    if path.is_dir():
        return "it is a folder"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    if path.is_fifo():
        return ""  # opening it would wait for a reader, who takes the closing for the end
    new = not path.exists()
    with path.open("ab"):
        pass
    if new:
        path.unlink()
    return ""


def parsed(parse: Callable[[str], T], fits: Callable[[T], bool], what: str) -> Callable[[str], T]:
    """The type of an argument of a command, for argparse, which is to say `must be {what}, not ...` of any other."""

    def convert(text: str) -> T:
        import argparse  # here, as programs that have no command line do not need it

        try:
            value = parse(text)
        except ValueError:
            fit = False
        else:
            fit = fits(value)
        if not fit:
            raise argparse.ArgumentTypeError(f"must be {what}, not {text!r}")
        return value

    return convert
