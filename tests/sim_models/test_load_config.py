# SPDX-License-Identifier: Apache-2.0
"""Loading with own memory, with a config handle, and what a model takes of the device."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_char_p, c_int32, c_size_t, c_uint32, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim_models.simulator import Acl, AclError, DeviceMemory, Launch, Model

Load = Callable[[Path | bytes | str], Model]
Launcher = Callable[..., Launch]

LISTED = """
weight_bytes = 100000
inputs = [{ name = "x", shape = [16] }]
outputs = [{ name = "y", shape = [16], fill = "copy" }]
"""
PRIORITY, LOAD_TYPE, PATH, MEM, MEM_SIZE, WEIGHT, WEIGHT_SIZE, WORK, WORK_SIZE = range(9)
FROM_FILE, FROM_FILE_WITH_MEM, FROM_MEM, FROM_MEM_WITH_MEM, FROM_FILE_WITH_QUEUE, _ = range(1, 7)


@pytest.fixture
def described(tmp_path: Path) -> Path:
    path = tmp_path / "net.toml"
    path.write_text(LISTED)
    return path


def sizes(acl: Acl, path: Path) -> tuple[int, int]:
    work, weights = c_size_t(), c_size_t()
    acl.aclmdlQuerySize(path, byref(work), byref(weights))
    return work.value, weights.value


def test_a_loaded_model_takes_device_memory(acl: Acl, silero: Path) -> None:
    work, weights = sizes(acl, silero)
    assert weights == silero.stat().st_size
    assert work >= (576 + 256 + 1 + 256) * 4
    before = acl.live("device_bytes")
    model = Model(acl, silero)
    assert acl.live("device_bytes") - before >= work + weights
    model.unload()
    assert acl.live("device_bytes") == before


def test_a_model_that_does_not_fit(acl: Acl, silero: Path) -> None:
    before = acl.live("models"), acl.live("device_blocks")
    acl.aclsimLimitMemory(0, 1 << 20)
    with pytest.raises(AclError, match="memory") as caught:
        Model(acl, silero)
    assert caught.value.code == 207001
    assert (acl.live("models"), acl.live("device_blocks")) == before


def test_own_memory(acl: Acl, described: Path) -> None:
    work, weights = sizes(acl, described)
    assert weights == 100000
    mine = [DeviceMemory(acl, work), DeviceMemory(acl, weights)]
    before, number = acl.live("device_bytes"), c_uint32()
    memory = (mine[0].address, work, mine[1].address, weights)
    acl.aclmdlLoadFromFileWithMem(described, byref(number), *memory)
    assert acl.live("device_bytes") == before
    acl.aclmdlUnload(number.value)
    content = described.read_bytes()
    acl.aclmdlLoadFromMemWithMem(c_char_p(content), len(content), byref(number), *memory)
    acl.aclmdlUnload(number.value)
    for block in mine:
        block.free()
    for arguments, code, message in (
        ((mine[0].address, work - 1, None, 0), 100015, f"workspace memory has {work - 1} bytes, but {work}"),
        ((None, 0, mine[0].address, 1), 100015, "weight memory has 1 bytes, but 100000 are needed"),
        ((mine[0].address, work, None, 0), 145007, "workspace memory is not device memory"),
    ):
        with pytest.raises(AclError, match=message) as caught:
            acl.aclmdlLoadFromFileWithMem(described, byref(number), *arguments)
        assert caught.value.code == code


def test_the_size_of_a_model_with_open_shapes_cannot_be_told(acl: Acl, recognizer: Path) -> None:
    with pytest.raises(AclError, match="has open shapes") as caught:
        sizes(acl, recognizer)
    assert caught.value.code == 145000


class Config:
    def __init__(self, acl: Acl) -> None:
        self.acl, self.handle = acl, acl.aclmdlCreateConfigHandle()

    def set(self, option: int, value: Any) -> None:
        self.acl.aclmdlSetConfigOpt(self.handle, option, byref(value), ctypes.sizeof(value))

    def load(self) -> int:
        number = c_uint32()
        self.acl.aclmdlLoadWithConfig(self.handle, byref(number))
        return number.value


@pytest.fixture
def config(acl: Acl) -> Any:
    made = Config(acl)
    yield made
    acl.aclmdlDestroyConfigHandle(made.handle)
    with pytest.raises(AclError, match=r"load config .* is destroyed"):
        acl.aclmdlDestroyConfigHandle(made.handle)


def test_a_config_that_names_a_file(acl: Acl, config: Config, described: Path) -> None:
    config.set(LOAD_TYPE, c_size_t(FROM_FILE))
    config.set(PRIORITY, c_int32(3))
    path = c_char_p(str(described).encode())
    config.set(PATH, path)  # copied
    path.value = b"gone"
    acl.aclmdlUnload(config.load())


def test_a_config_with_the_model_in_memory(acl: Acl, config: Config) -> None:
    config.set(LOAD_TYPE, c_size_t(FROM_MEM))
    content = ctypes.create_string_buffer(LISTED.encode(), len(LISTED))
    config.set(MEM, c_void_p(ctypes.addressof(content)))
    config.set(MEM_SIZE, c_size_t(len(LISTED)))
    acl.aclmdlUnload(config.load())


def test_a_config_with_own_memory(acl: Acl, config: Config, described: Path) -> None:
    work, weights = sizes(acl, described)
    mine = [DeviceMemory(acl, work), DeviceMemory(acl, weights)]
    config.set(PATH, c_char_p(str(described).encode()))
    for option, value in (
        (WORK, c_void_p(mine[0].address)),
        (WORK_SIZE, c_size_t(work)),
        (WEIGHT, c_void_p(mine[1].address)),
        (WEIGHT_SIZE, c_size_t(weights)),
        (LOAD_TYPE, c_size_t(FROM_FILE_WITH_MEM)),
    ):
        config.set(option, value)
    before = acl.live("device_bytes")
    number = config.load()
    assert acl.live("device_bytes") == before
    acl.aclmdlUnload(number)
    config.set(WORK_SIZE, c_size_t(1))
    with pytest.raises(AclError, match="workspace memory has 1 bytes"):
        config.load()
    config.set(LOAD_TYPE, c_size_t(FROM_FILE))  # the memory is not used
    acl.aclmdlUnload(config.load())
    for block in mine:
        block.free()


def test_an_incomplete_config(config: Config) -> None:
    for load_type, code, message in (
        (None, 100000, "load type 0; set ACL_MDL_LOAD_TYPE_SIZET"),
        (99, 100000, "load type 99"),
        (FROM_FILE, 100000, "has no path; set ACL_MDL_PATH_PTR"),
        (FROM_MEM, 100000, "has no model; set ACL_MDL_MEM_ADDR_PTR"),
        (FROM_FILE_WITH_QUEUE, 200001, "no queues"),
    ):
        if load_type is not None:
            config.set(LOAD_TYPE, c_size_t(load_type))
        with pytest.raises(AclError, match=message) as caught:
            config.load()
        assert caught.value.code == code


def test_options_that_cannot_be_set(config: Config) -> None:
    with pytest.raises(AclError, match="load option 0: a value of 8 bytes") as caught:
        config.set(PRIORITY, c_size_t(1))
    assert caught.value.code == 100000
    with pytest.raises(AclError, match="load option 9 is not supported by the simulator") as caught:
        config.set(9, c_size_t(1))
    assert caught.value.code == 200006


def test_loads_of_one_file_are_independent(acl: Acl, load: Load, launch: Launcher, described: Path) -> None:
    models = [load(described) for _ in range(5)]
    assert len({model.id for model in models}) == 5
    gone = Model(acl, described)
    gone.unload()
    for value, model in enumerate(models):
        run = launch(model, [np.full(16, value, np.float32)], [64])
        run.execute()
        assert run.result(0).tolist() == [value] * 16
