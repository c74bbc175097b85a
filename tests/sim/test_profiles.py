# SPDX-License-Identifier: Apache-2.0
"""instant.toml shows the values that are built into the library; the two must not drift apart."""

from __future__ import annotations

import re
from pathlib import Path

from sim.conftest import ROOT

# What a field is called in the library, and in how many of its units one of the file's is.
FIELDS = {
    "name": ("name", 1),
    "soc_name": ("soc_name", 1),
    "ai_cores": ("ai_cores", 1),
    "copy_engines": ("copy_engines", 1),
    "memory_bytes": ("memory_bytes", 1),
    "h2d_gbps": ("h2d_gbps", 1),
    "d2h_gbps": ("d2h_gbps", 1),
    "d2d_gbps": ("d2d_gbps", 1),
    "copy_latency_us": ("copy_latency_ns", 1000),
    "launch_overhead_us": ("launch_overhead_ns", 1000),
    "callback_latency_us": ("callback_latency_ns", 1000),
    "stream_limit": ("stream_limit", 1),
    "event_limit": ("event_limit", 1),
    "notify_limit": ("notify_limit", 1),
}


def _value(text: str) -> object:
    if text.startswith('"'):
        return text.strip('"')
    left, _, shift = text.replace("ull", "").partition("<<")
    return int(left) << int(shift or 0)


def test_instant_is_what_is_built_in() -> None:
    file = (ROOT / "aioascend" / "sim" / "profiles" / "instant.toml").read_text()
    header = (ROOT / "_native" / "sim" / "core" / "profile.h").read_text()
    in_file = dict(re.findall(r'^(\w+) = ("[^"]*"|\d+)', file, re.MULTILINE))
    built_in = dict(re.findall(r'^    [\w:]+ (\w+) = ("[^"]*"|[^;]+);', header, re.MULTILINE))
    assert set(in_file) == set(FIELDS)
    assert set(built_in) == {name for name, _ in FIELDS.values()}
    for field, (name, factor) in FIELDS.items():
        expected = _value(in_file[field])
        assert _value(built_in[name]) == (expected * factor if isinstance(expected, int) else expected), field


def test_all_profiles_have_the_same_fields() -> None:
    for path in Path(ROOT / "aioascend" / "sim" / "profiles").glob("*.toml"):
        assert set(re.findall(r"^(\w+) = ", path.read_text(), re.MULTILINE)) == set(FIELDS), path.name
