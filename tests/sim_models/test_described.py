# SPDX-License-Identifier: Apache-2.0
"""Models that are only described: outputs follow from rules, time from the description."""

from __future__ import annotations

import json
from collections.abc import Callable
from ctypes import c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim_models.simulator import GEAR_INPUT, Acl, AclError, Launch, Model, timeline

Load = Callable[[Path | bytes | str], Model]
Launcher = Callable[..., Launch]

COPY = """
name = "copy"
latency_us = 500
latency_us_per_item = 100
[[inputs]]
name = "x"
dtype = "float32"
shape = [-1, 3]
[[outputs]]
name = "y"
shape = [-1, 4]
fill = "copy"
"""


def one_output(rule: dict[str, Any], out: list[int], dtype: str = "float32") -> str:
    return json.dumps(
        {
            "inputs": [
                {"name": "x", "dtype": "float32", "shape": [2, 3]},
                {"name": "n", "dtype": "int64", "shape": [4]},
            ],
            "outputs": [{"name": "y", "dtype": dtype, "shape": out, **rule}],
        }
    )


X = np.array([[1, 2, 3], [10, 20, 30]], np.float32)
N = np.array([5, 6, 7, 8], np.int64)


@pytest.mark.parametrize(
    ("rule", "out", "expected"),
    [
        ({}, [2, 2], [[0, 0], [0, 0]]),
        ({"fill": "zeros"}, [3], [0, 0, 0]),
        ({"fill": "copy"}, [2, 4], [[1, 2, 3, 1], [10, 20, 30, 10]]),
        ({"fill": "copy"}, [8], [1, 2, 3, 10, 20, 30, 1, 2]),
        ({"fill": "copy", "from": "n"}, [2, 3], [[5, 6, 7], [8, 5, 6]]),
        ({"fill": "sum"}, [2, 2], [[6, 6], [60, 60]]),
        ({"fill": "sum"}, [1], [66]),
        ({"fill": "sum", "from": "n"}, [1], [26]),
        ({"fill": "index"}, [2, 2], [[0, 1], [2, 3]]),
        ({"fill": "constant", "value": 2.5}, [2], [2.5, 2.5]),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int32", "uint8"])
def test_fill_rules(
    load: Load, launch: Launcher, rule: dict[str, Any], out: list[int], expected: Any, dtype: str
) -> None:
    run = launch(load(one_output(rule, out, dtype)), [X, N], [256])
    run.execute()
    np.testing.assert_array_equal(run.result(0), np.array(expected).astype(dtype))


def test_open_dimensions_follow_the_input(load: Load, launch: Launcher) -> None:
    model = load(COPY)
    assert model.desc.input_dims(0) == [-1, 3]
    assert model.desc.output_dims(0) == [-1, 4]
    run = launch(model, [np.arange(15, dtype=np.float32).reshape(5, 3)], [5 * 16])
    run.input_set.describe(0, "float32", [5, 3])
    run.execute()
    assert run.output_set.shape(0) == [5, 4]
    assert run.result(0)[4].tolist() == [12, 13, 14, 12]


def test_latency_is_per_execution_and_per_item(load: Load, launch: Launcher, acl: Acl, stream: c_void_p) -> None:
    acl.aclsimSetClock(1)
    run = launch(load(COPY), [np.zeros((7, 3), np.float32)], [7 * 16])
    for items in (7, 2):
        run.input_set.describe(0, "float32", [items, 3])
        acl.aclsimClearTimeline()
        run.execute_async(stream)
        acl.aclrtSynchronizeStream(stream)
        (record,) = timeline(acl)
        assert (record.kind, record.name, record.unit) == (b"execute", b"copy", b"ai_core")
        assert record.end_ns - record.start_ns == 500_000 + items * 100_000


def test_gears_of_a_described_model(load: Load, launch: Launcher, acl: Acl) -> None:
    model = load(COPY.replace('name = "copy"', 'name = "copy"\ndynamic_batch = [1, 8]'))
    assert model.desc.inputs() == ["x", GEAR_INPUT]
    assert model.desc.output_size(0) == 8 * 16
    run = launch(model, [np.arange(24, dtype=np.float32), None], [8 * 16])
    acl.aclmdlSetDynamicBatchSize(model.id, run.input_set.handle, 1, 1)
    run.execute()
    assert run.result(0).tolist() == [[0, 1, 2, 0]]
    acl.aclmdlSetDynamicBatchSize(model.id, run.input_set.handle, 1, 8)
    run.execute()
    assert run.result(0)[7].tolist() == [21, 22, 23, 21]


def test_the_name_is_that_of_the_file_unless_given(load: Load, launch: Launcher, acl: Acl, tmp_path: Path) -> None:
    path = tmp_path / "nameless.json"
    path.write_text(one_output({}, [1]))
    launch(load(path), [X, N], [4]).execute()
    assert timeline(acl)[-1].name == b"nameless"


def test_a_long_name_is_replaced_in_the_description(load: Load) -> None:
    desc = load(one_output({}, [1]).replace('"y"', '"' + "y" * 128 + '"')).desc
    assert desc.outputs() == ["acl_output_0"]
    assert load(one_output({}, [1]).replace('"y"', '"' + "y" * 127 + '"')).desc.outputs() == ["y" * 127]


WRAPPER = 'onnx = "/nowhere/net.onnx"\n'
LISTED = '[[inputs]]\nname = "x"\nshape = [1]\n[[outputs]]\nname = "y"\nshape = [1]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = 'x'", "inputs: a description names an `onnx` file or lists"),
        ("[[inputs]]\nname = 'x'\nshape = [1]", "outputs: list at least one"),
        (LISTED + "colour = 1", r"outputs\[0\].colour: unknown key; known here: 'name'"),
        ("lattency_us = 1\n" + LISTED, "lattency_us: unknown key; known here: .*'latency_us'"),
        ("latency_us = 'fast'\n" + LISTED, 'latency_us: expected a number, found "fast"'),
        ("latency_us = -1\n" + LISTED, "latency_us: must lie between 0 and"),
        (
            LISTED.replace("shape", "dtype = 'float'\nshape", 1),
            r"inputs\[0\].dtype: unknown element type 'float'; known: float32",
        ),
        (LISTED.replace("shape = [1]\n", "", 1), r"inputs\[0\].shape: is missing"),
        (LISTED.replace('name = "x"\n', "", 1), r"inputs\[0\].name: every input and output needs a name"),
        (LISTED.replace("[1]", "[1, 0]", 1), r"inputs\[0\].shape: \[1,0\] holds 0"),
        (LISTED.replace("[1]", "[1, -2]", 1), r"inputs\[0\].shape: \[1,-2\] holds -2"),
        (LISTED.replace("[1]", "['a']", 1), r"inputs\[0\].shape: expected a list of integers"),
        (
            LISTED.replace("[1]", f"{[2**40, 2**40]}", 1),
            r"inputs\[0\].shape: .* is larger than memory can be",
        ),
        (LISTED + "fill = 'noise'", r"outputs\[0\].fill: unknown rule 'noise'"),
        (LISTED + "fill = 'copy'\nfrom = 'z'", r"outputs\[0\].from: there is no input 'z'; inputs: 'x'"),
        (LISTED + "fill = 'constant'", r"outputs\[0\].value: belongs to fill = \"constant\""),
        (LISTED + "value = 1", r"outputs\[0\].value: belongs to fill = \"constant\""),
        (
            LISTED.replace("[1]", "[1]", 1)[:-4] + "[1, -1]\n",
            r"outputs\[0\].shape: dimension 1 is open, but input 'x'",
        ),
        (LISTED + "[[outputs]]\nname = 'y'\nshape = [2]", "outputs: the name 'y' is used twice"),
        ("inputs = 3", "inputs: expected an array of tables, found 3"),
        ("dynamic_batch = [1, 2]\n" + LISTED, "dynamic_batch needs inputs whose first dimension is open"),
        ("dynamic_batch = []\n" + LISTED, "dynamic_batch: needs 1 to 100 gears, has 0"),
        ("dynamic_batch = [1, 1]\n" + LISTED, r"dynamic_batch: gear \[1\] is listed twice"),
        ("dynamic_batch = [0]\n" + LISTED, r"dynamic_batch: gear \[0\] holds a size below 1"),
        ("dynamic_batch = [1]\ndynamic_hw = [[1, 1]]\n" + LISTED, "exclude each other"),
        ("dynamic_hw = [[1, 2, 3]]\n" + LISTED, r"dynamic_hw: a gear is \[height, width\], not \[1,2,3\]"),
        ("dynamic_hw = [[1, 2]]\n" + LISTED, "dynamic_hw needs one input of four dimensions"),
        (
            "dynamic_dims = [[1], [1, 2]]\n" + LISTED,
            r"dynamic_dims: gears \[1\] and \[1,2\] differ in length",
        ),
        ("dynamic_dims = [[1, 2]]\n" + LISTED, "dynamic_dims gives 2 sizes per gear for 0 open dimensions"),
        (
            "onnx = 'net.onnx'",
            "onnx: 'net.onnx' is relative, which means nothing for a description in memory",
        ),
        ("onnx = ''", "onnx: is empty"),
        (WRAPPER + LISTED, "inputs: comes from the ONNX file"),
        (WRAPPER + "shapes = { x = [0] }", r"shapes.x: \[0\] holds 0"),
        (
            "dynamic_batch = [1, 9223372036854775807]\n" + LISTED.replace("[1]", "[-1, 4]"),
            r"'x' of shape \[9223372036854775807,4\] is larger than memory can be",
        ),
        (
            "dynamic_dims = [[1], [2]]\ninputs = ["
            + ", ".join(
                f"{{ name = '{name}', shape = {[first] + 64 * [1]} }}" for name, first in {"a": -1, "b": 1}.items()
            )
            + "]\noutputs = [{ name = 'y', shape = [1] }]",
            "dynamic_dims: the inputs have 130 dimensions in all; at most 128",
        ),
        (
            '{"inputs": [{"name": "x", "shape": [18446744073709551615]}], "outputs": []}',
            r"inputs\[0\].shape: expected a list of integers, found \[18446744073709551615\]",
        ),
        (r'{"inputs": [{"name": "a\u0000b", "shape": [1]}], "outputs": []}', r"inputs\[0\].name: holds a NUL"),
        ("name = ", "model in memory:1: expected a value"),
        ("{", "model in memory:1: syntax error"),
    ],
)
def test_a_description_with_a_mistake_names_it(acl: Acl, text: str, message: str) -> None:
    with pytest.raises(AclError, match=message) as caught:
        Model(acl, text)
    assert caught.value.code == 100003


def memory_of_this_process(which: str) -> int:
    """In kB. VmRSS: what it has now; VmHWM: the most it had."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(which)]
    return int(line.split()[1])


def test_memory_that_a_model_only_stands_for_is_not_touched(acl: Acl) -> None:
    """A model may be as large as the device; this machine need not be."""
    large = LISTED.replace("[1]", f"[{2**28}]", 1)
    Path("/proc/self/clear_refs").write_text("5")  # the most is what it has now
    before = memory_of_this_process("VmHWM")
    Model(acl, f"weight_bytes = {2**31}\n" + large).unload()
    assert memory_of_this_process("VmHWM") - before < 200_000


def test_models_that_are_gone_are_forgotten(acl: Acl) -> None:
    before = 0
    for number in range(11_000):
        if number == 1_000:
            before = memory_of_this_process("VmRSS")
        Model(acl, f"latency_us = {number}\n" + LISTED).unload()
    assert memory_of_this_process("VmRSS") - before < 1_000


def test_a_wrapper_reads_the_file_beside_it(load: Load, tmp_path: Path, classifier: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(classifier.read_bytes())
    path = tmp_path / "fixed.toml"
    path.write_text('onnx = "net.onnx"\nshapes = { x = [2, 3, 48, 192] }\n')
    desc = load(path).desc
    assert desc.input_dims(0) == [2, 3, 48, 192]
    assert desc.output_dims(0) == [2, 2]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("shapes = { y = [1, 3, 48, 192] }", "shapes.y: the model has no such input; inputs: 'x'"),
        ("shapes = { x = [1, 3, 48] }", r"shapes.x: \[1,3,48\] does not fit the model's \[-1,3,-1,-1\]"),
        ("dynamic_batch = [1, 2]", r"fix the others by `shapes`. Inputs are x = \[-1,3,-1,-1\]"),
    ],
)
def test_a_wrapper_must_fit_its_model(acl: Acl, tmp_path: Path, classifier: Path, lines: str, message: str) -> None:
    path = tmp_path / "wrapper.toml"
    path.write_text(f'onnx = "{classifier}"\n{lines}\n')
    with pytest.raises(AclError, match=message) as caught:
        Model(acl, path)
    assert caught.value.code == 100003


def test_a_shape_that_the_network_refuses(acl: Acl, tmp_path: Path, recognizer: Path) -> None:
    path = tmp_path / "wrapper.toml"
    path.write_text(f'onnx = "{recognizer}"\nshapes = {{ x = [1, 4, 48, 320] }}\n')
    with pytest.raises(AclError, match=str(path)) as caught:
        Model(acl, path)
    assert caught.value.code == 145021


def test_a_small_output_fails_the_task(load: Load, launch: Launcher, acl: Acl, stream: c_void_p) -> None:
    run = launch(load(COPY), [np.zeros((4, 3), np.float32)], [63])
    run.input_set.describe(0, "float32", [4, 3])
    run.execute_async(stream)
    with pytest.raises(AclError, match=r"output 'y' came out as \[4,4\] float32.* buffer of 63 bytes") as caught:
        acl.aclrtSynchronizeStream(stream)
    assert caught.value.code == 507011
