# SPDX-License-Identifier: Apache-2.0
"""Every code has an exception, and every exception survives being sent elsewhere."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aioascend as aa
from aioascend import _error_table
from aioascend.errors import error_from_code

codes = st.one_of(
    st.integers(),
    st.integers(100_000, 600_000),
    st.sampled_from(sorted(_error_table.CODES)),
    st.sampled_from([edge for first, last, _ in _error_table.RANGES for edge in (first - 1, first, last, last + 1)]),
).filter(lambda code: code != 0)


@given(
    code=codes,
    where=st.text(),
    detail=st.text(),
    device=st.none() | st.integers(0, 9),
    stream=st.none() | st.integers(),
)
def test_any_code_is_an_error(code: int, where: str, detail: str, device: int | None, stream: int | None) -> None:
    error = error_from_code(code, where, detail, device=device, stream=stream)
    assert isinstance(error, aa.AclError)
    assert error.code == code
    assert error.retry in ("caller", "retry", "elsewhere", "gone")
    assert error.name
    assert error.hint
    assert str(code) in str(error)
    assert where in str(error)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301
        assert type(twin) is type(error)
        assert (str(twin), vars(twin)) == (str(error), vars(error))
    behind = aa.DependencyError.behind(error, where, device=device, stream=stream)
    assert (behind.code, behind.__cause__) == (code, error)
    assert behind.retry == ("gone" if error.retry == "gone" else "retry")


def test_success_is_none() -> None:
    with pytest.raises(ValueError, match="code 0 means success"):
        error_from_code(0)
