# SPDX-License-Identifier: Apache-2.0
"""Real ONNX models give the answers that ONNX Runtime gives."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_void_p
from pathlib import Path

import numpy as np
import pytest

from sim_models.oracle import answers, assert_same, floats
from sim_models.simulator import Acl, Launch, Model, new_stream, package_file

Load = Callable[[Path | bytes | str], Model]
Launcher = Callable[..., Launch]


def test_a_static_model_describes_itself(load: Load, silero: Path) -> None:
    desc = load(silero).desc
    assert desc.inputs() == ["input", "state"]
    assert desc.outputs() == ["output", "stateN"]
    assert [desc.input_dims(i) for i in range(2)] == [[1, 576], [2, 1, 128]]
    assert [desc.output_dims(i) for i in range(2)] == [[1, 1], [2, 1, 128]]
    assert [desc.input_size(i) for i in range(2)] == [576 * 4, 256 * 4]
    assert [desc.output_size(i) for i in range(2)] == [4, 256 * 4]
    assert desc.input_type(0) == desc.output_type(1) == "float32"
    assert desc.input_range(1) == [(2, 2), (1, 1), (128, 128)]
    assert desc.current_output_dims(1) == [2, 1, 128]
    assert desc.index_of_input("state") == 1


def test_a_stateful_static_model_runs_step_by_step(
    load: Load, launch: Launcher, stream: c_void_p, acl: Acl, silero: Path
) -> None:
    model = load(silero)
    state, wave = np.zeros((2, 1, 128), np.float32), floats(1, 5, 1, 576)
    steps = [launch(model, [part, state], [4, 1024]) for part in wave]
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        step.execute_async(stream)
        if following is not None:
            acl.aclrtMemcpyAsync(following.inputs[1].address, 1024, step.outputs[1].address, 1024, 3, stream)
    acl.aclrtSynchronizeStream(stream)
    for step, part in zip(steps, wave, strict=True):
        expected, state = answers(silero, {"input": part, "state": state})
        assert_same(step.result(0), expected)
        assert_same(step.result(1), state)


def test_open_shapes_come_with_every_execution(load: Load, launch: Launcher, recognizer: Path) -> None:
    model = load(recognizer)
    assert model.desc.input_dims(0) == [-1, 3, -1, -1]
    assert model.desc.input_range(0) == [(1, -1), (3, 3), (1, -1), (1, -1)]
    assert model.desc.output_dims(0) == [-1, -1, 6625]
    assert model.desc.input_size(0) == model.desc.output_size(0) == 0
    for batch, width in ((1, 320), (2, 96), (1, 320)):
        image = floats(width, batch, 3, 48, width)
        run = launch(model, [image], [batch * 200 * 6625 * 4])
        run.input_set.describe(0, "float32", image.shape)
        run.execute()
        (expected,) = answers(recognizer, {"x": image})
        assert_same(run.result(0), expected)


def test_an_output_buffer_of_any_sufficient_size_will_do(load: Load, launch: Launcher, detector: Path) -> None:
    """Also sizes that no shape of the output has."""
    model = load(detector)
    image = floats(2, 1, 3, 64, 96)
    (expected,) = answers(detector, {"x": image})
    for extra in (0, 4, 1, 4096):
        run = launch(model, [image], [expected.nbytes + extra])
        run.input_set.describe(0, "float32", image.shape)
        run.execute()
        assert_same(run.result(0), expected)


def test_a_scalar_input_and_integers(load: Load, launch: Launcher, silero_dynamic: Path) -> None:
    model = load(silero_dynamic)
    inputs = {
        "input": floats(3, 3, 576),
        "sr": np.array(16000, np.int64),
        "state": np.zeros((2, 3, 128), np.float32),
    }
    assert model.desc.inputs() == list(inputs)
    assert model.desc.input_dims(1) == []
    assert model.desc.input_type(1) == "int64"
    assert model.desc.input_size(1) == 8
    run = launch(model, list(inputs.values()), [12, 3072])
    run.input_set.describe(0, "float32", [3, 576])
    run.input_set.describe(2, "float32", [2, 3, 128])
    run.execute()
    for index, expected in enumerate(answers(silero_dynamic, inputs)):
        assert_same(run.result(index), expected)


def test_integer_input(load: Load, launch: Launcher, magika: Path) -> None:
    model = load(magika)
    assert model.desc.input_type(0) == "int32"
    text = np.random.default_rng(4).integers(0, 256, (3, 2048), dtype=np.int32)
    run = launch(model, [text], [3 * 214 * 4])
    run.input_set.describe(0, "int32", text.shape)
    run.execute()
    (expected,) = answers(magika, {"bytes": text})
    assert_same(run.result(0), expected)


def test_the_same_model_from_memory(load: Load, launch: Launcher, classifier: Path) -> None:
    model = load(classifier.read_bytes())
    image = floats(5, 4, 3, 48, 192)
    run = launch(model, [image], [4 * 2 * 4])
    run.input_set.describe(0, "float32", image.shape)
    run.execute()
    (expected,) = answers(classifier, {"x": image})
    assert_same(run.result(0), expected)


def test_two_ids_of_one_file_run_side_by_side(load: Load, launch: Launcher, acl: Acl, recognizer: Path) -> None:
    """Both are under way at the same simulated time, and neither disturbs the other's answer."""
    images = [floats(seed, 1, 3, 48, 160) for seed in (6, 7)]
    streams, runs = [], []
    for image in images:
        runs.append(launch(load(recognizer), [image], [40 * 6625 * 4]))
        runs[-1].input_set.describe(0, "float32", image.shape)
        streams.append(new_stream(acl))
    acl.aclsimHoldDevice(0)
    for _ in range(4):
        for run, stream in zip(runs, streams, strict=True):
            run.execute_async(stream)
    acl.aclsimReleaseDevice(0)
    for stream in streams:
        acl.aclrtSynchronizeStream(stream)
        acl.aclrtDestroyStream(stream)
    for run, image in zip(runs, images, strict=True):
        (expected,) = answers(recognizer, {"x": image})
        assert_same(run.result(0), expected)


@pytest.mark.parametrize("name", ["silero_vad", "silero_vad_16k_op15", "silero_vad_half"])
def test_a_model_that_the_engine_cannot_read_says_why(acl: Acl, name: str) -> None:
    path = package_file("silero_vad", f"data/{name}.onnx")
    with pytest.raises(Exception, match="OpenVINO cannot read the model") as caught:
        Model(acl, path)
    assert getattr(caught.value, "code", None) == 100014
    assert str(path) in str(caught.value)
    assert "Conv" in str(caught.value)
    assert "\n" not in getattr(caught.value, "message", "\n").strip()
