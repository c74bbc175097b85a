# SPDX-License-Identifier: Apache-2.0
"""What the page on model descriptions shows works."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from sim_models.simulator import GEAR_INPUT, TYPES, Acl, Model

PAGE = Path(__file__).resolve().parents[2] / "docs" / "simulator" / "model-description.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```(toml|json)\n(.*?)```", TEXT, re.DOTALL)

Load = Callable[[Path | bytes | str], Model]


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_the_examples_load(load: Load, tmp_path: Path, recognizer: Path, number: int) -> None:
    kind, text = EXAMPLES[number]
    (tmp_path / "rec.onnx").symlink_to(recognizer)
    path = tmp_path / f"model.{kind}"
    path.write_text(text)
    desc = load(path).desc
    assert ("dynamic_batch" in text) == (GEAR_INPUT in desc.inputs())


def test_all_element_types_are_named(acl: Acl) -> None:
    listed = re.search(r"`dtype` is one of (.*?)\.\n", TEXT, re.DOTALL)
    assert listed is not None
    assert set(re.findall(r"`(\w+)`", listed[1])) == {*TYPES, "bfloat16"}


@pytest.mark.parametrize("rule", re.findall(r'^\| `"(\w+)"`', TEXT, re.MULTILINE))
def test_all_rules_exist(load: Load, rule: str) -> None:
    value = ', "value": 1' if rule == "constant" else ""
    load(
        '{"inputs": [{"name": "x", "shape": [1]}],'
        f' "outputs": [{{"name": "y", "shape": [1], "fill": "{rule}"{value}}}]}}'
    )
