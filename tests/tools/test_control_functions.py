# SPDX-License-Identifier: Apache-2.0
"""The ctypes declarations agree with aclsim.h, and every function of it can be reached."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

import aioascend.testing
from aioascend import BackendError
from aioascend.testing import LIVE_OBJECTS, TASK_KINDS, Simulator, _control, _simulator

HEADER = Path(__file__).resolve().parents[2] / "_native" / "sim" / "include" / "aclsim.h"

C_TYPES = {
    "int": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "const char *": ctypes.c_char_p,
    "void *": ctypes.c_void_p,
    "aclsimRecord *": ctypes.POINTER(_control.Record),
    "size_t *": ctypes.POINTER(ctypes.c_size_t),
}


def declared() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Result and argument types of each function of the header."""
    text = re.sub(r"//[^\n]*", "", HEADER.read_text(encoding="utf-8"))
    functions = {}
    for result, name, arguments in re.findall(r"^([\w ]+?[ *]+)(aclsim\w+)\(([^)]*)\);", text, re.MULTILINE):
        types = (
            [] if arguments == "void" else [re.sub(r"\w+$", "", part.strip()).strip() for part in arguments.split(",")]
        )
        functions[name] = (result.strip(), tuple(types))
    del functions["aclsimSetEngineLibrary"]  # not for tests: it is called when the library is loaded
    return functions


def test_every_function_is_declared_with_the_types_of_the_header() -> None:
    ours = {name: (ctypes.c_int, arguments) for name, arguments in _control._COMMANDS.items()}
    ours |= _control._QUERIES
    theirs = {
        name: (C_TYPES[result], tuple(C_TYPES[type_] for type_ in arguments))
        for name, (result, arguments) in declared().items()
    }
    assert len(theirs) > 30
    assert ours == theirs


def test_every_function_is_used() -> None:
    source = Path(_simulator.__file__).read_text(encoding="utf-8")
    source += Path(_control.__file__).read_text(encoding="utf-8").partition("class Control")[2]
    assert [name for name in declared() if f'"{name}"' not in source] == []


def test_record_has_the_layout_of_the_header(tmp_path: Path) -> None:
    fields = [name for name, _ in _control.Record._fields_]
    lines = "".join(f'    printf("%zu ", offsetof(aclsimRecord, {name}));\n' for name in fields)
    program = tmp_path / "layout.c"
    program.write_text(
        f'#include <stdio.h>\n#include "{HEADER}"\nint main(void) {{\n{lines}'
        '    printf("%zu", sizeof(aclsimRecord));\n    return 0;\n}\n',
        encoding="utf-8",
    )
    subprocess.run(["cc", "-std=c11", "-Wall", "-Werror", program, "-o", tmp_path / "layout"], check=True)
    done = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True)
    ours = [getattr(_control.Record, name).offset for name in fields]
    assert [int(number) for number in done.stdout.split()] == [*ours, ctypes.sizeof(_control.Record)]


def test_names_are_those_of_the_header(sim: Simulator) -> None:
    text = HEADER.read_text(encoding="utf-8").replace("\n//", "")
    kinds = re.search(r"Kinds: ([^.]*)\.", text)
    assert kinds is not None
    assert tuple(re.findall(r"\w+", kinds.group(1))) == TASK_KINDS
    objects = re.search(r"Live objects: (.*?)-1 for", text)
    assert objects is not None
    assert tuple(re.findall(r'"(\w+)"', objects.group(1))) == LIVE_OBJECTS
    assert all(sim.live(name) >= 0 for name in LIVE_OBJECTS)


def test_another_library_is_refused(sim: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    cann = SimpleNamespace(kind="cann", library=SimpleNamespace(path="/usr/local/Ascend/lib64/libascendcl.so"))
    monkeypatch.setattr(_simulator, "load_backend", lambda name: cann)
    with pytest.raises(BackendError, match=r"/usr/local/Ascend/lib64/libascendcl\.so.*AIOASCEND_BACKEND=sim"):
        aioascend.testing.simulator()


def test_a_simulator_of_another_release_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "old.c"
    source.write_text('const char *aclsimVersion(void) { return "aioascend-sim 0.0"; }\n', encoding="utf-8")
    library = tmp_path / "libascendcl.so"
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library], check=True)
    with pytest.raises(BackendError, match=r"lacks aclsimReset, .*of another release"):
        Simulator(str(library))


def test_the_same_controls_each_time(sim: Simulator) -> None:
    assert aioascend.testing.simulator() is sim
    assert sim.version.startswith("aioascend-sim ")
