# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator
from ctypes import c_void_p
from pathlib import Path

import pytest

from sim_models.simulator import Acl, Launch, Model, engine_path, library_path, new_stream, package_file

OBJECTS = (
    "models",
    "datasets",
    "data_buffers",
    "tensor_descs",
    "model_descs",
    "device_blocks",
    "streams",
    "tasks",
)


@pytest.fixture(scope="session")
def library() -> Acl:
    acl = Acl(library_path())
    acl.aclsimSetEngineLibrary(engine_path())
    # Another test of this process may have initialised the library already, which is harmless.
    assert acl.value("aclInit", None) in (0, 100002)
    return acl


@pytest.fixture
def acl(library: Acl) -> Iterator[Acl]:
    """Device 0 with nothing on it, and with nothing left on it afterwards."""
    library.aclsimReset()
    library.message()  # what other tests of this process have left on this thread
    library.aclrtSetDevice(0)
    before = {what: library.live(what) for what in OBJECTS}
    yield library
    library.aclsimReset()
    library.aclrtSynchronizeDevice()
    assert {what: library.live(what) for what in OBJECTS} == before
    library.aclrtResetDevice(0)


@pytest.fixture
def load(acl: Acl) -> Iterator[Callable[[Path | bytes | str], Model]]:
    """Loads a model for the duration of the test."""
    models: list[Model] = []

    def load_(source: Path | bytes | str) -> Model:
        models.append(Model(acl, source))
        return models[-1]

    yield load_
    for model in models:
        model.unload()


@pytest.fixture
def launch(load: Callable[..., Model]) -> Iterator[Callable[..., Launch]]:
    """Makes memory and datasets for a model, for the duration of the test."""
    made: list[Launch] = []

    def launch_(*arguments: object) -> Launch:
        made.append(Launch(*arguments))  # type: ignore[arg-type]
        return made[-1]

    yield launch_
    for one in made:
        one.close()


@pytest.fixture
def stream(acl: Acl) -> Iterator[c_void_p]:
    made = new_stream(acl)
    yield made
    acl.aclsimReleaseStream(made)  # what a failed test may have left held would block the destroy
    acl.aclsimReleaseDevice(0)
    acl.aclrtDestroyStream(made)


def _rapidocr(name: str) -> Path:
    return package_file("rapidocr_onnxruntime", f"models/{name}")


@pytest.fixture(scope="session")
def detector() -> Path:
    """x[N,3,H,W] -> [N,1,H,W]"""
    return _rapidocr("ch_PP-OCRv4_det_infer.onnx")


@pytest.fixture(scope="session")
def recognizer() -> Path:
    """x[N,3,48,W] -> [N,T,6625]"""
    return _rapidocr("ch_PP-OCRv4_rec_infer.onnx")


@pytest.fixture(scope="session")
def classifier() -> Path:
    """x[N,3,48,192] -> [N,2]"""
    return _rapidocr("ch_ppocr_mobile_v2.0_cls_infer.onnx")


@pytest.fixture(scope="session")
def magika() -> Path:
    """bytes[N,2048] int32 -> [N,214]"""
    return package_file("magika", "models/standard_v3_3/model.onnx")


@pytest.fixture(scope="session")
def silero() -> Path:
    """Static: input[1,576], state[2,1,128] -> [1,1], state"""
    return package_file("silero_vad", "data/silero_vad_openvino_16k.onnx")


@pytest.fixture(scope="session")
def silero_dynamic() -> Path:
    """The same with an open batch and a scalar: input[N,576], state[2,N,128], sr -> [N,1], state"""
    return package_file("silero_vad", "data/silero_vad_op18_ifless.onnx")


@pytest.fixture(scope="session")
def native() -> Path:
    """The folder of the native sources."""
    return Path(__file__).resolve().parents[2] / "_native"
