# SPDX-License-Identifier: Apache-2.0
"""Numbers that open no device and create no stream."""

from __future__ import annotations

from typing import Any

import pytest

import aioascend as aa
from hostile.scene import Scene

pytestmark = pytest.mark.anyio

NAN, INF = float("nan"), float("inf")

OPTIONS: dict[str, dict[type[Exception], list[Any]]] = {
    "flight_limit": {TypeError: [NAN, 2.5, "12", True], ValueError: [-1, 0, 1, 1025, 2**70]},
    "report_timeout": {TypeError: ["1", True, [1], 1j], ValueError: [NAN, INF, -INF, -1, 0, 1e6, 2**2000]},
    "device_cache_bytes": {TypeError: [NAN, 1.5, "a", True, [1]], ValueError: [-1, 2**64]},
    "pinned_cache_bytes": {TypeError: [NAN, 1.5, "a", True, [1]], ValueError: [-1, 2**64]},
    "index": {TypeError: [True, "0", None, 1.0, NAN, [0]], ValueError: [-1, 2**31, 2**100]},
    "backend": {ValueError: ["nope", "SIM", 5, [], b"sim"]},
}


@pytest.mark.parametrize("name", OPTIONS)
async def test_options_of_a_device(scene: Scene, name: str) -> None:
    for error, values in OPTIONS[name].items():
        for value in values:
            options: dict[str, Any] = {"index": 1, "backend": "sim", name: value}

            async def open_device(options: dict[str, Any] = options) -> None:
                await aa.open_device(**options)

            await scene.refuses(open_device, error, f"{name} must be .*{str(value)[:20]}".replace("[", r"\["))


async def test_a_device_that_is_not_there(scene: Scene) -> None:
    async def open_device() -> None:
        await aa.open_device(10**9, backend="sim")

    await scene.refuses(open_device, aa.ArgumentError, r"no device 1000000000; ids are 0 to 1")


async def test_options_of_an_open_device(scene: Scene) -> None:
    async def open_device() -> None:
        await aa.open_device(0, backend="sim", flight_limit=3)

    await scene.refuses(open_device, ValueError, "device 0 is open with the default options, not .*'flight_limit': 3")


@pytest.mark.parametrize("name", ["priority", "flags"])
async def test_options_of_a_stream(scene: Scene, name: str) -> None:
    for value in (1.0, NAN, "1", None, True, [1]):
        await scene.refuses(lambda value=value: scene.npu.create_stream(**{name: value}), TypeError, f"{name} must be ")  # type: ignore[misc]
    for value in (-1, 2**32, 2**100):
        await scene.refuses(
            lambda value=value: scene.npu.create_stream(**{name: value}), ValueError, f"{name} .*{value}"
        )  # type: ignore[misc]


async def test_flags_that_the_library_does_not_know(scene: Scene) -> None:
    async def create() -> None:
        await scene.npu.create_stream(flags=2**32 - 1)

    await scene.refuses(create, aa.UnsupportedError, "0xffffffff")


async def test_handles_of_no_stream(scene: Scene) -> None:
    for value, error, message in (
        (0, ValueError, "0 stands for the default stream"),
        (-1, ValueError, "handle must be .* not -1"),
        (2**64, ValueError, "handle must be "),
        (1.5, TypeError, "handle must be .* not 1.5"),
        ("1", TypeError, "handle must be "),
        (None, TypeError, "handle must be "),
        (12345, aa.ArgumentError, "0x3039 is no stream"),
    ):
        await scene.refuses(lambda value=value: scene.npu.wrap_stream(value), error, message)  # type: ignore[misc]
