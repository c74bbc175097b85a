# SPDX-License-Identifier: Apache-2.0
"""What users give to a scheduler, checked."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from aioascend._arguments import whole
from aioascend._deadlines import limit_of
from aioascend.scheduler.policies import POLICIES, Policy

__all__ = ["check_kinds", "check_policy", "check_request", "check_units"]

U = TypeVar("U")


def check_units(units: Sequence[U]) -> list[U]:
    """The units, at least one."""
    if not isinstance(units, (list, tuple)):
        raise TypeError(f"units must be a list or tuple, not {units!r}")
    if not units:
        raise ValueError("there must be at least one unit to spread calls over, the list is empty")
    return list(units)


def check_policy(policy: str | Policy) -> Policy:
    """The function."""
    if isinstance(policy, str):
        if policy not in POLICIES:
            raise ValueError(f"policy must be a function or one of {', '.join(POLICIES)}, not {policy!r}")
        return POLICIES[policy]()
    if not callable(policy):
        raise TypeError(f"policy must be a function or one of {', '.join(POLICIES)}, not {policy!r}")
    return policy


def check_kinds(kinds: Mapping[str, float] | None) -> dict[str, float]:
    """Shares, each above 0 and up to 1."""
    if kinds is None:
        return {}
    if not isinstance(kinds, Mapping):
        raise TypeError(f'kinds must be a dict of shares, such as {{"ocr": 0.5}}, not {kinds!r}')
    for kind, share in kinds.items():
        problem = f"the share of kind {kind!r} must be a number above 0 and up to 1, not {share!r}"
        if isinstance(share, bool) or not isinstance(share, (int, float)):
            raise TypeError(problem)
        if not 0 < share <= 1:
            raise ValueError(problem)
    return dict(kinds)


def check_request(
    units: int,
    kinds: Mapping[str, float],
    usual_retries: int,
    unit: int | None,
    affinity: Hashable,
    kind: str | None,
    timeout: float | None,
    retries: int | None,
) -> tuple[float, int]:
    """The seconds that a request has, and how often it may run again."""
    if unit is not None:
        whole("unit", unit, 0, units - 1, "the index of a unit")
        if affinity is not None:
            raise ValueError(f"a request has a unit or an affinity, not both: unit {unit!r}, affinity {affinity!r}")
    try:
        hash(affinity)
    except TypeError:
        raise TypeError(f"affinity must be hashable, such as a text or a number, not {affinity!r}") from None
    if kind is not None and kind not in kinds:
        known = ", ".join(kinds) or "there are none"
        raise ValueError(f"kind must be one of the scheduler's kinds ({known}), not {kind!r}")
    limit = limit_of(timeout)
    return limit, usual_retries if retries is None else whole("retries", retries, 0, 1000, "a number of further tries")
