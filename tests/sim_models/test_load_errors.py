# SPDX-License-Identifier: Apache-2.0
"""What cannot be loaded is refused with a code and a message that names the file and the way out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from ctypes import byref, c_char_p, c_size_t, c_uint32
from pathlib import Path

import pytest

from sim_models.simulator import Acl, AclError, Description, Model, library_path

Load = Callable[[Path | bytes | str], Model]


def every_way_to_open(acl: Acl, path: Path) -> list[Callable[[], object]]:
    number, work, weights = c_uint32(), c_size_t(), c_size_t()

    def describe() -> None:
        desc = Description(acl)
        try:
            acl.aclmdlGetDescFromFile(desc.handle, path)
        finally:
            desc.destroy()

    return [
        lambda: acl.aclmdlLoadFromFile(path, byref(number)),
        lambda: acl.aclmdlLoadFromFileWithMem(path, byref(number), None, 0, None, 0),
        lambda: acl.aclmdlQuerySize(path, byref(work), byref(weights)),
        describe,
    ]


def assert_refused(acl: Acl, path: Path, code: int, message: str) -> None:
    for attempt in every_way_to_open(acl, path):
        with pytest.raises(AclError, match=message) as caught:
            attempt()
        assert caught.value.code == code
        assert str(path) in caught.value.message


def test_a_missing_file(acl: Acl, tmp_path: Path) -> None:
    assert_refused(acl, tmp_path / "none.onnx", 145002, "No such file")


def test_a_directory(acl: Acl, tmp_path: Path) -> None:
    assert_refused(acl, tmp_path, 145002, "is a directory")


def test_an_empty_file(acl: Acl, tmp_path: Path) -> None:
    path = tmp_path / "empty.onnx"
    path.touch()
    assert_refused(acl, path, 145006, "is empty")


@pytest.mark.parametrize("part", [0.1, 0.5, 0.999])
def test_a_file_that_is_cut_off(acl: Acl, tmp_path: Path, classifier: Path, part: float) -> None:
    content = classifier.read_bytes()
    path = tmp_path / "cut.onnx"
    path.write_bytes(content[: int(len(content) * part)])
    assert_refused(acl, path, 145006, "cut off after")


def test_a_file_of_another_kind(acl: Acl, tmp_path: Path) -> None:
    path = tmp_path / "picture.onnx"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    assert_refused(acl, path, 100003, "neither ONNX nor a model description")


def test_text_as_an_onnx_file(acl: Acl, tmp_path: Path) -> None:
    path = tmp_path / "text.onnx"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\n")
    assert_refused(acl, path, 100003, "neither ONNX nor a model description")


def test_what_the_engine_prints_stays_away_from_stderr(
    acl: Acl, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "text.onnx"
    path.write_text("node { name: 1 }")
    assert_refused(acl, path, 100003, "not a model")
    assert capfd.readouterr() == ("", "")


def test_a_compiled_model_alone(acl: Acl, tmp_path: Path) -> None:
    path = tmp_path / "net.om"
    path.write_bytes(b"IMOD" + bytes(252))
    assert_refused(acl, path, 100003, "compiled for an NPU.*put 'net.onnx' or a model description 'net.toml' beside it")


def test_a_missing_compiled_model(acl: Acl, tmp_path: Path) -> None:
    assert_refused(acl, tmp_path / "net.om", 145002, "No such file.*put 'net.onnx'")


def test_a_compiled_model_under_another_name(acl: Acl, tmp_path: Path) -> None:
    path = tmp_path / "net.bin"
    path.write_bytes(b"IMOD" + bytes(252))
    assert_refused(acl, path, 100003, "load the ONNX model it was compiled from")


@pytest.mark.parametrize("compiled_is_there", [True, False])
def test_a_compiled_model_stands_for_the_onnx_model_beside_it(
    load: Load, tmp_path: Path, silero: Path, compiled_is_there: bool
) -> None:
    path = tmp_path / "net.om"
    if compiled_is_there:
        path.write_bytes(b"IMOD" + bytes(252))
    (tmp_path / "net.onnx").write_bytes(silero.read_bytes())
    assert load(path).desc.inputs() == ["input", "state"]


def test_a_description_beside_a_compiled_model_comes_before_the_onnx_model(
    load: Load, tmp_path: Path, classifier: Path
) -> None:
    (tmp_path / "net.onnx").write_bytes(classifier.read_bytes())
    (tmp_path / "net.toml").write_text('onnx = "net.onnx"\nshapes = { x = [-1, 3, 48, 192] }\ndynamic_batch = [1, 2]')
    assert load(tmp_path / "net.om").desc.inputs() == ["x", "ascend_mbatch_shape_data"]


def test_a_description_with_a_mistake_is_named_with_its_line(acl: Acl, tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text("latency_us = 1\nlatency_us = 2\n")
    assert_refused(acl, path, 100003, "wrong.toml:2: key 'latency_us' is defined twice")


def test_a_wrapper_of_a_missing_file_names_both(acl: Acl, tmp_path: Path) -> None:
    path = tmp_path / "wrapper.toml"
    path.write_text('onnx = "gone.onnx"')
    with pytest.raises(AclError, match=r"gone\.onnx': No such file") as caught:
        Model(acl, path)
    assert caught.value.code == 145002


def test_a_changed_file_is_read_again(load: Load, tmp_path: Path, silero: Path, classifier: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(silero.read_bytes())
    first = load(path)
    path.write_bytes(classifier.read_bytes())
    assert load(path).desc.inputs() == ["x"]
    assert first.desc.inputs() == ["input", "state"]


@pytest.mark.parametrize("content", [b"", b"\x00\x01\x02", b"IMOD" + bytes(252)])
def test_memory_that_is_no_model(acl: Acl, content: bytes) -> None:
    number = c_uint32()
    with pytest.raises(AclError, match="modelSize" if not content else "model in memory") as caught:
        acl.aclmdlLoadFromMem(c_char_p(content), len(content), byref(number))
    assert caught.value.code == (100003 if content else 100000)


def test_null_arguments(acl: Acl) -> None:
    number, size = c_uint32(), c_size_t()
    for attempt in (
        lambda: acl.aclmdlLoadFromFile(None, byref(number)),
        lambda: acl.aclmdlLoadFromFile("x.onnx", None),
        lambda: acl.aclmdlLoadFromMem(None, 4, byref(number)),
        lambda: acl.aclmdlQuerySize(None, byref(size), byref(size)),
        lambda: acl.aclmdlQuerySizeFromMem(None, 1, byref(size), byref(size)),
    ):
        with pytest.raises(AclError, match="NULL") as caught:
            attempt()
        assert caught.value.code == 100000


CHILD = """
import ctypes, sys
acl = ctypes.CDLL(sys.argv[1])
acl.aclGetRecentErrMsg.restype = ctypes.c_char_p
if len(sys.argv) > 3:
    acl.aclsimSetEngineLibrary(sys.argv[3].encode())
acl.aclInit(None)
acl.aclrtSetDevice(0)
number = ctypes.c_uint32()
code = acl.aclmdlLoadFromFile(sys.argv[2].encode(), ctypes.byref(number))
print(code, acl.aclGetRecentErrMsg().decode())
"""


def load_in_child(*arguments: str | Path, **environment: str) -> str:
    kept = {key: value for key, value in os.environ.items() if key != "AIOASCEND_OPENVINO_LIBRARY"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, library_path(), *arguments],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


def test_without_openvino_the_error_says_how_to_get_it(silero: Path) -> None:
    answer = load_in_child(silero)
    assert answer.startswith("500002 ")
    assert 'pip install "aioascend[sim]"' in answer
    assert "libopenvino_c.so" in answer


def test_a_library_that_is_something_else(silero: Path) -> None:
    answer = load_in_child(silero, library_path())
    assert answer.startswith("500002 ")
    assert "has no function 'ov_get_openvino_version'" in answer
    assert "openvino>=2025.1" in answer


def test_the_environment_names_the_library(silero: Path, tmp_path: Path) -> None:
    missing = tmp_path / "libopenvino_c.so"
    answer = load_in_child(silero, "/elsewhere.so", AIOASCEND_OPENVINO_LIBRARY=str(missing))
    assert str(missing) in answer


OLD_OPENVINO = """
struct version { const char *build, *description; };
int ov_get_openvino_version(struct version *v) { v->build = "2024.6.0-17404"; v->description = ""; return 0; }
"""


def test_an_old_openvino_is_refused_although_it_would_load(silero: Path, tmp_path: Path, native: Path) -> None:
    names = set()
    for line in (native / "sim" / "model" / "openvino_api.h").read_text().splitlines():
        if "X(" in line and "ov_" in line:
            names.add("ov_" + line.split("ov_", 1)[1].split(",")[0])
    assert "ov_core_create" in names
    source = tmp_path / "old.c"
    rest = "".join(f"int {name}(void) {{ return 0; }}\n" for name in sorted(names) if "_version" not in name)
    source.write_text(OLD_OPENVINO + "void ov_version_free(void *v) { (void)v; }\n" + rest)
    library = tmp_path / "libopenvino_c.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    answer = load_in_child(silero, library)
    assert answer.startswith("500002 ")
    assert 'is OpenVINO 2024.6.0-17404; install "openvino>=2025.1"' in answer
