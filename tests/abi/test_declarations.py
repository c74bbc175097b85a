# SPDX-License-Identifier: Apache-2.0
"""acl.h says what the ABI data says: checked by the compiler, from assertions that are made here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Reduces a function type to machine types, in the words of the data: any pointer is `ptr`, an enum `enum32`.
PREAMBLE = """
#include "acl/acl.h"

#include <cstddef>
#include <cstdint>
#include <type_traits>

struct ptr {};
struct enum32 {};
using i32 = std::int32_t;
using i64 = std::int64_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using f32 = float;

template <class T> using shape = std::conditional_t<std::is_pointer_v<T>, ptr,
                                 std::conditional_t<std::is_enum_v<T>, enum32, T>>;
template <class F> struct function_shape;
template <class R, class... A> struct function_shape<R(A...)> { using type = shape<R>(shape<A>...); };
template <class F> struct function_shape<F *> : function_shape<F> {};
template <class F, class S> constexpr bool has_shape = std::is_same_v<typename function_shape<F>::type, S>;
"""


def c_value(value: int | str) -> str:
    return f'"{value}"' if isinstance(value, str) else f"{value}{'ULL' if value > 2**31 - 1 else ''}"


def assertions(abi: dict[str, Any]) -> list[str]:
    out = []
    for name, function in abi["functions"].items():
        types = ", ".join(c_type for c_type, _ in function["params"])
        out.append(f"std::is_same_v<decltype({name}), {function['returns']}({types})>")
        out.append(f"has_shape<decltype({name}), {function['abi']}>")
    for name, typedef in abi["typedefs"].items():
        out.append(f"std::is_same_v<{name}, {typedef['type']}>")
        if typedef["kind"] == "function_pointer":
            out.append(f"has_shape<{name}, {typedef['abi']}>")
    for name, enum in abi["enums"].items():
        out.append(f"sizeof({name}) == {enum['size']}")
        out.append(f"std::is_same_v<std::underlying_type_t<{name}>, {enum['underlying']}>")
        for key, value in enum["values"].items():
            out.append(f"{key} == {value}")
            out.append(f"std::is_same_v<decltype({key}), {name}>")
    for name, struct in abi["structs"].items():
        if struct.get("opaque"):
            out.append(f"std::is_class_v<{struct['tag']}> && std::is_same_v<{name}, {struct['tag']}>")
            continue
        out.append(f"sizeof({name}) == {struct['size']} && alignof({name}) == {struct['align']}")
        for c_type, field, offset in struct["fields"]:
            base, _, dims = c_type.partition("[")
            expected = f"{base.strip()}[{dims}" if dims else base
            out.append(f"offsetof({name}, {field}) == {offset}")
            out.append(f"std::is_same_v<decltype({name}::{field}), {expected}>")
    for name, constant in abi["constants"].items():
        value = constant["value"]
        if isinstance(value, str):
            out.append(f"sizeof({name}) == {len(value) + 1}")
        else:
            out.append(f"{name} == {c_value(value)}")
    return out


def test_every_declaration_is_what_the_data_says(
    abi: dict[str, Any], abi_folder: Path, tmp_path: Path, compile_: Callable[..., None]
) -> None:
    checks = assertions(abi)
    assert len(checks) > 2 * len(abi["functions"]) + len(abi["constants"]) + len(abi["enums"])
    source = tmp_path / "declarations.cpp"
    source.write_text(PREAMBLE + "".join(f"static_assert({check});\n" for check in checks), encoding="utf-8")
    compile_(
        *("c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wno-invalid-offsetof"),
        *("-I", abi_folder / "include", "-fsyntax-only", source),
    )


@pytest.mark.parametrize(
    "claim",
    [
        "has_shape<decltype(aclrtSetDevice), i32(u32)>",
        "has_shape<decltype(aclrtMemcpyAsync), i32(ptr,u64,ptr,u64,u32,ptr)>",
        "ACL_EVENT_RECORDED_STATUS_COMPLETE == 0",
        "sizeof(aclmdlIODims) == 1159",
    ],
)
def test_a_wrong_claim_is_noticed(claim: str, abi_folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "claim.cpp"
    source.write_text(f"{PREAMBLE}static_assert({claim});\n", encoding="utf-8")
    command = ["c++", "-std=c++17", "-I", str(abi_folder / "include"), "-fsyntax-only", str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert "static assertion failed" in done.stderr or "static_assert failed" in done.stderr


def test_a_plain_c_program_can_include_it(abi_folder: Path, tmp_path: Path, compile_: Callable[..., None]) -> None:
    source = tmp_path / "program.c"
    source.write_text(
        '#include "acl/acl.h"\n'
        "#include <stdio.h>\n"
        "int main(void) {\n"
        "    aclrtCallback callback = NULL;\n"
        '    printf("%d %zu %d\\n", ACL_ERROR_RT_LOST_HEARTBEAT, sizeof(aclmdlHW), callback == NULL);\n'
        "    return 0;\n"
        "}\n",
        encoding="utf-8",
    )
    program = tmp_path / "program"
    compile_(
        *("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I", abi_folder / "include"),
        *(source, "-o", program),
    )
    assert subprocess.run([program], capture_output=True, text=True).stdout == "507010 2056 1\n"


def test_generated_files_are_up_to_date(abi_folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-B", str(abi_folder / "generate.py"), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
