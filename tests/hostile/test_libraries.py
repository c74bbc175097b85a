# SPDX-License-Identifier: Apache-2.0
"""What is no ACL library, and settings in the environment that mean nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import aioascend as aa
from aioascend import _native
from aioascend._backend import load_backend, simulator_library
from hostile.scene import Scene

pytestmark = pytest.mark.anyio


def text(path: Path) -> None:
    path.write_text("not a library\n", encoding="utf-8")


def empty(path: Path) -> None:
    path.touch()


def folder(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def cut_off(share: float) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        content = simulator_library().read_bytes()
        path.write_bytes(content[: int(len(content) * share)])

    return make


def of_another_machine(path: Path) -> None:
    content = bytearray(simulator_library().read_bytes())
    content[18:20] = (2).to_bytes(2, "little")  # e_machine: SPARC
    path.write_bytes(content)


def exporting(*functions: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        source = path.with_suffix(".c")
        source.write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in functions), encoding="utf-8")
        subprocess.run(["cc", "-shared", "-fPIC", source, "-o", path], check=True, timeout=60)

    return make


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "text": (text, "invalid ELF header|file too short"),
    "empty": (empty, "file too short"),
    "folder": (folder, "not a file"),
    "pipe": (pipe, "not a file"),
    "head only": (cut_off(0.0001), "file too short|cannot read file data|cut off"),
    "half": (cut_off(0.5), "is cut off, [0-9]+ bytes are missing; copy it again"),
    "a tenth": (cut_off(0.1), "is cut off"),
    "other machine": (of_another_machine, "cannot load an AscendCL library"),
    "other functions": (exporting("hello"), "is not an AscendCL library: it exports none of its functions"),
    "some functions": (
        exporting("aclInit", "aclrtSetDevice"),
        "lacks functions that aioascend needs: .*aclrtMemcpyAsync",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_acl_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    make, message = BROKEN[name]
    path = tmp_path / "libascendcl.so"
    make(path)
    monkeypatch.setenv("AIOASCEND_LIBRARY", str(path))
    with pytest.raises(aa.BackendError, match="correct it or unset it") as caught:
        load_backend()
    [(tried, reason)] = caught.value.attempts
    assert tried == str(path)
    assert pytest.raises(aa.BackendError, match=message).matches(aa.BackendError(reason))
    monkeypatch.delenv("AIOASCEND_LIBRARY")
    assert load_backend("sim").kind == "sim"


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_installation_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "lib64").mkdir()
    BROKEN[name][0](tmp_path / "lib64" / "libascendcl.so")
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    monkeypatch.delenv("ASCEND_TOOLKIT_HOME", raising=False)
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    with pytest.raises(aa.BackendError, match="source CANN's set_env") as caught:
        load_backend("cann")
    assert caught.value.attempts[0][0] == str(tmp_path / "lib64" / "libascendcl.so")


def test_the_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    [libc] = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libc.so" in line}
    monkeypatch.setenv("AIOASCEND_LIBRARY", libc)
    with pytest.raises(aa.BackendError, match="is not an AscendCL library"):
        load_backend()
    monkeypatch.setenv("AIOASCEND_LIBRARY", "libc.so.6")  # a path is meant, not a name to look up
    with pytest.raises(aa.BackendError, match="no such file"):
        load_backend()


@pytest.mark.parametrize("value", ["SIM", "cann ", "0", "cpu", "sim,cann"])
def test_backends_that_are_none(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("AIOASCEND_BACKEND", value)
    with pytest.raises(ValueError, match=f"AIOASCEND_BACKEND must be 'auto', 'cann' or 'sim', not '{value}'"):
        load_backend()


def test_a_setting_that_is_empty_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOASCEND_LIBRARY", "")
    monkeypatch.setenv("AIOASCEND_BACKEND", "")
    assert load_backend().kind in ("sim", "cann")


def test_paths_may_be_any_bytes(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff.so"
    Path(os.fsdecode(path)).write_text("no library", encoding="utf-8")
    with pytest.raises(aa.BackendError, match=r"\\xff\.so"):
        _native.load_library(os.fsdecode(path))


@pytest.mark.parametrize("make", [text, folder, pipe, empty])
def test_profiles_that_are_none(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """In a process of its own: the environment is looked at once."""
    profile = tmp_path / "profile.toml"
    make(profile)
    program = "import aioascend\ntry: aioascend.backend_info('sim')\nexcept aioascend.BackendError as e: print(e)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "AIOASCEND_SIM_PROFILE": str(profile)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    if make is not empty:  # nothing set is the default of everything
        assert f"AIOASCEND_SIM_PROFILE={profile} is neither" in done.stdout
    assert done.returncode == 0, done.stderr


async def test_nothing_is_harmed(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text(tmp_path / "libascendcl.so")
    monkeypatch.setenv("AIOASCEND_LIBRARY", str(tmp_path / "libascendcl.so"))

    async def open_device() -> None:
        await aa.open_device(0)

    await scene.refuses(open_device, aa.BackendError, "libascendcl.so")
