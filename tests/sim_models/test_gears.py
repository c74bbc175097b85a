# SPDX-License-Identifier: Apache-2.0
"""Models with gears: a size is chosen per execution from a list, through an extra input."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref, c_size_t, c_void_p
from pathlib import Path

import numpy as np
import pytest

from sim_models.oracle import answers, assert_same, floats
from sim_models.simulator import (
    ALL_INPUTS,
    GEAR_INPUT,
    Acl,
    AclError,
    Batches,
    Dims,
    Launch,
    Model,
    Sizes,
)

Load = Callable[[Path | bytes | str], Model]
Launcher = Callable[..., Launch]


@pytest.fixture
def batched(tmp_path: Path, classifier: Path) -> Path:
    path = tmp_path / "batched.toml"
    path.write_text(
        f"""
        onnx = "{classifier}"
        shapes = {{ x = [-1, 3, 48, 192] }}
        dynamic_batch = [1, 4, 2]
        """
    )
    return path


@pytest.fixture
def sized(tmp_path: Path, detector: Path) -> Path:
    path = tmp_path / "sized.toml"
    path.write_text(
        f"""
        onnx = "{detector}"
        shapes = {{ x = [1, 3, -1, -1] }}
        dynamic_hw = [[64, 96], [96, 64], [128, 128]]
        """
    )
    return path


@pytest.fixture
def shaped(tmp_path: Path, silero_dynamic: Path) -> Path:
    path = tmp_path / "shaped.json"
    path.write_text(
        f"""{{
            "onnx": "{silero_dynamic}",
            "shapes": {{"input": [-1, 576], "state": [2, -1, 128]}},
            "dynamic_dims": [[1, 1], [3, 3]]
        }}"""
    )
    return path


def test_batches_are_described(load: Load, acl: Acl, batched: Path) -> None:
    desc = load(batched).desc
    assert desc.inputs() == ["x", GEAR_INPUT]
    assert desc.input_dims(0) == [-1, 3, 48, 192]
    assert desc.input_range(0) == [(1, 4), (3, 3), (48, 48), (192, 192)]
    assert desc.input_size(0) == 4 * 3 * 48 * 192 * 4
    assert desc.input_dims(1) == [1]
    assert desc.input_type(1) == "int64"
    assert desc.input_size(1) == 8
    assert desc.index_of_input(GEAR_INPUT) == 1
    assert desc.output_dims(0) == [4, 2]
    assert desc.output_size(0) == 4 * 2 * 4
    batches, sizes, count = Batches(), Sizes(), c_size_t(9)
    acl.aclmdlGetDynamicBatch(desc.handle, byref(batches))
    assert list(batches.batch[: batches.count]) == [1, 4, 2]
    acl.aclmdlGetDynamicHW(desc.handle, 0, byref(sizes))
    acl.aclmdlGetInputDynamicGearCount(desc.handle, ALL_INPUTS, byref(count))
    assert sizes.count == count.value == 0


def test_a_batch_is_chosen_per_execution(load: Load, launch: Launcher, acl: Acl, batched: Path) -> None:
    model = load(batched)
    assert model.desc.current_output_dims(0) == [4, 2]
    images = floats(1, 4, 3, 48, 192)
    run = launch(model, [images, None], [32])
    classifier = Path(batched.read_text().split('"')[1])
    for batch in (2, 4, 1):
        acl.aclmdlSetDynamicBatchSize(model.id, run.input_set.handle, 1, batch)
        assert model.desc.current_output_dims(0) == [batch, 2]
        run.execute()
        assert run.output_set.shape(0) == [batch, 2]
        (expected,) = answers(classifier, {"x": images[:batch]})
        assert_same(run.result(0), expected)


def test_the_gear_counts_that_lies_in_device_memory_when_the_execution_starts(
    load: Load, launch: Launcher, acl: Acl, batched: Path, stream: c_void_p
) -> None:
    model = load(batched)
    run = launch(model, [floats(2, 4, 3, 48, 192), None], [32])
    acl.aclmdlSetDynamicBatchSize(model.id, run.input_set.handle, 1, 1)
    acl.aclsimHoldStream(stream)
    run.execute_async(stream)
    acl.aclmdlSetDynamicBatchSize(model.id, run.input_set.handle, 1, 2)
    acl.aclsimReleaseStream(stream)
    acl.aclrtSynchronizeStream(stream)
    assert run.output_set.shape(0) == [2, 2]


def test_an_execution_without_a_gear_fails_on_the_device(
    load: Load, launch: Launcher, acl: Acl, batched: Path, stream: c_void_p
) -> None:
    model = load(batched)
    run = launch(model, [floats(3, 4, 3, 48, 192), np.array([7], np.int64)], [32])
    run.execute_async(stream)
    with pytest.raises(AclError, match=r"holds \[7\], which is no gear") as caught:
        acl.aclrtSynchronizeStream(stream)
    assert caught.value.code == 507011


def test_image_sizes(load: Load, launch: Launcher, acl: Acl, sized: Path, detector: Path) -> None:
    model = load(sized)
    assert model.desc.input_dims(0) == [1, 3, -1, -1]
    assert model.desc.input_range(0) == [(1, 1), (3, 3), (64, 128), (64, 128)]
    assert model.desc.input_size(0) == 3 * 128 * 128 * 4
    assert model.desc.input_size(1) == 16
    assert model.desc.output_dims(0) == [1, 1, 128, 128]
    sizes = Sizes()
    acl.aclmdlGetDynamicHW(model.desc.handle, ALL_INPUTS, byref(sizes))
    assert [list(sizes.hw[i]) for i in range(sizes.count)] == [[64, 96], [96, 64], [128, 128]]
    image = floats(4, 1, 3, 96, 64)
    run = launch(model, [image, None], [128 * 128 * 4])
    acl.aclmdlSetDynamicHWSize(model.id, run.input_set.handle, 1, 96, 64)
    run.execute()
    (expected,) = answers(detector, {"x": image})
    assert_same(run.result(0), expected)


def test_dimensions_of_several_inputs(
    load: Load, launch: Launcher, acl: Acl, shaped: Path, silero_dynamic: Path
) -> None:
    model = load(shaped)
    assert model.desc.inputs() == ["input", "sr", "state", GEAR_INPUT]
    count = c_size_t()
    acl.aclmdlGetInputDynamicGearCount(model.desc.handle, ALL_INPUTS, byref(count))
    gears = (Dims * count.value)()
    acl.aclmdlGetInputDynamicDims(model.desc.handle, ALL_INPUTS, gears, count.value)
    assert [gear.list() for gear in gears] == [[1, 576, 2, 1, 128], [3, 576, 2, 3, 128]]
    inputs = {
        "input": floats(5, 3, 576),
        "sr": np.array(16000, np.int64),
        "state": np.zeros((2, 3, 128), np.float32),
    }
    run = launch(model, [*inputs.values(), None], [12, 3072])
    acl.aclmdlSetInputDynamicDims(model.id, run.input_set.handle, 3, byref(gears[1]))
    assert model.desc.current_output_dims(1) == [2, 3, 128]
    run.execute()
    for index, expected in enumerate(answers(silero_dynamic, inputs)):
        assert_same(run.result(index), expected)


def test_what_is_no_gear_is_refused(load: Load, launch: Launcher, acl: Acl, batched: Path) -> None:
    model = load(batched)
    run = launch(model, [floats(6, 4, 3, 48, 192), None], [32])
    with pytest.raises(AclError, match=r"\[3\] is no gear of model batched; its gears: \[1\], \[4\], \[2\]") as caught:
        acl.aclmdlSetDynamicBatchSize(model.id, run.input_set.handle, 1, 3)
    assert caught.value.code == 145013


def test_the_index_must_be_that_of_the_extra_input(load: Load, launch: Launcher, acl: Acl, batched: Path) -> None:
    model = load(batched)
    run = launch(model, [floats(7, 4, 3, 48, 192), None], [32])
    for index in (0, 2):
        with pytest.raises(AclError, match=r"index \d is not that of input ascend") as caught:
            acl.aclmdlSetDynamicBatchSize(model.id, run.input_set.handle, index, 1)
        assert caught.value.code == 145011


def test_the_buffer_of_the_extra_input_must_be_device_memory_of_its_size(
    load: Load, launch: Launcher, acl: Acl, sized: Path
) -> None:
    model = load(sized)
    run = launch(model, [floats(8, 1, 3, 128, 128), np.zeros(1, np.int64)], [65536])
    with pytest.raises(AclError, match="has 8 bytes, but 16 are needed") as caught:
        acl.aclmdlSetDynamicHWSize(model.id, run.input_set.handle, 1, 64, 96)
    assert caught.value.code == 145012
    on_host = np.zeros(2, np.int64)
    acl.aclUpdateDataBuffer(run.input_set.buffers[1], on_host.ctypes.data, 16)
    with pytest.raises(AclError, match="not device memory") as caught:
        acl.aclmdlSetDynamicHWSize(model.id, run.input_set.handle, 1, 64, 96)
    assert caught.value.code == 145011


def test_kinds_of_gear_exclude_each_other(
    load: Load, launch: Launcher, acl: Acl, batched: Path, silero: Path, recognizer: Path
) -> None:
    model, static, ranged = load(batched), load(silero), load(recognizer)
    run = launch(model, [floats(9, 4, 3, 48, 192), None], [32])
    with pytest.raises(AclError, match="gears of another kind; set them with aclmdlSetDynamicBatchSize") as caught:
        acl.aclmdlSetDynamicHWSize(model.id, run.input_set.handle, 1, 1, 1)
    assert caught.value.code == 100019
    with pytest.raises(AclError, match="gears of another kind") as caught:
        acl.aclmdlSetInputDynamicDims(model.id, run.input_set.handle, 1, byref(Dims.of([1, 3, 48, 192])))
    assert caught.value.code == 100019
    with pytest.raises(AclError, match="no gears to set") as caught:
        acl.aclmdlSetDynamicBatchSize(static.id, run.input_set.handle, 1, 1)
    assert caught.value.code == 100019
    with pytest.raises(AclError, match="shapes are set with aclmdlSetDatasetTensorDesc") as caught:
        acl.aclmdlSetDynamicBatchSize(ranged.id, run.input_set.handle, 1, 1)
    assert caught.value.code == 100019


def test_dimensions_that_are_no_gear(load: Load, launch: Launcher, acl: Acl, shaped: Path) -> None:
    model = load(shaped)
    inputs = [floats(10, 3, 576), np.array(16000, np.int64), floats(10, 2, 3, 128), None]
    run = launch(model, inputs, [12, 3072])
    for wrong in ([2, 576, 2, 2, 128], [1, 1], []):
        with pytest.raises(AclError, match=r"no gear .*\[1,576,2,1,128\], \[3,576,2,3,128\]") as caught:
            acl.aclmdlSetInputDynamicDims(model.id, run.input_set.handle, 3, byref(Dims.of(wrong)))
        assert caught.value.code == 145013
    with pytest.raises(AclError, match=r"room for 1 gears, but model shaped has 2") as caught:
        acl.aclmdlGetInputDynamicDims(model.desc.handle, ALL_INPUTS, byref(Dims()), 1)
    assert caught.value.code == 100000
    with pytest.raises(AclError, match=r"give \(size_t\)-1") as caught:
        acl.aclmdlGetInputDynamicDims(model.desc.handle, 0, byref(Dims()), 2)
    assert caught.value.code == 100000


def test_buffers_must_hold_the_gear_that_is_set(load: Load, launch: Launcher, acl: Acl, batched: Path) -> None:
    model = load(batched)
    run = launch(model, [floats(11, 2, 3, 48, 192), None], [16])
    acl.aclmdlSetDynamicBatchSize(model.id, run.input_set.handle, 1, 2)
    run.execute()
    acl.aclmdlSetDynamicBatchSize(model.id, run.input_set.handle, 1, 4)
    with pytest.raises(AclError, match="has 221184 bytes, but 442368 are needed") as caught:
        run.execute()
    assert caught.value.code == 100017
