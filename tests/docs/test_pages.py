# SPDX-License-Identifier: Apache-2.0
"""What the pages can be held to mechanically: links, names, figures, the profile that one of them shows."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import pytest

import aioascend as aa
from aioascend import errors
from aioascend._backend import load_backend
from aioascend._capability_costs import COSTS
from aioascend.testing import simulator

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if target.startswith(("http://", "https://")):
            continue
        path, _, fragment = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{target} of {page.name}"
        if fragment:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert fragment in map(anchor, headings), f"{target} of {page.name}"


def test_every_page_is_in_the_table_of_contents() -> None:
    index = read("index.md")
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"index.md"}
    assert {page for page in pages if f"]({page})" not in index} == set()


def test_the_tree_of_exceptions_is_complete() -> None:
    tree = read("errors.md").split("```")[1]
    drawn = []
    path: list[str] = []
    for line in tree.strip().splitlines():
        name = re.search(r"\w+Error", line)
        assert name is not None
        depth = name.start() // 4
        path[depth:] = [name[0]]
        drawn.append((name[0], path[depth - 1] if depth else "Exception"))
    classes = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, Exception)]
    assert sorted(drawn) == sorted((cls.__name__, cls.__bases__[0].__name__) for cls in classes)


def test_every_capability_that_is_used_is_explained() -> None:
    page = read("backends.md")
    named = set(re.findall(r"^\|[^|]*\| `(\w+)` \|", page, re.MULTILINE))
    assert named == set(COSTS)
    assert named <= load_backend("sim").library.capabilities.keys()


def test_defaults_are_those_of_the_code() -> None:
    header = (ROOT / "_native" / "runtime" / "device.h").read_text(encoding="utf-8")
    assert "flight_limit = 512" in header
    assert "512" in read("operations.md")
    assert "report_timeout_ms = 2000" in header
    assert "idle for 2 s" in read("errors.md")
    assert "stage_inline_bytes = 256 << 10" in header
    assert "256 KiB" in read("memory.md")
    assert header.count("_cache_bytes = size_t(256) << 20") == 2
    assert "256 MiB" in read("memory.md")


def test_the_simulator_has_as_many_functions_as_its_page_says() -> None:
    abi = json.loads((ROOT / "_native" / "abi" / "acl_abi.json").read_text(encoding="utf-8"))
    said = re.search(r"(\d+) of its functions", " ".join(read("simulator/index.md").split()))
    assert said is not None
    assert int(said[1]) == len(abi["functions"])


def test_the_profile_on_the_page_can_be_loaded(tmp_path: Path) -> None:
    profile = re.search(r"```toml\n(.*?)```", read("simulator/index.md"), re.DOTALL)
    assert profile is not None
    sim = simulator("sim")
    try:
        (tmp_path / "slow-link.toml").write_text(profile[1])
        sim.set_profile(tmp_path / "slow-link.toml")
        (tmp_path / "wrong.toml").write_text(profile[1].replace("h2d_gbps", "h2d_gbits"))
        with pytest.raises(aa.ArgumentError, match="h2d_gbits"):
            sim.set_profile(tmp_path / "wrong.toml")
    finally:
        sim.reset()
