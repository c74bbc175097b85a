# SPDX-License-Identifier: Apache-2.0
"""The reader of configuration files, built alone and with sanitizers."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sim_models.simulator import package_file

Read = Callable[..., list[str]]


@pytest.fixture(scope="session")
def read(native: Path, tmp_path_factory: pytest.TempPathFactory) -> Read:
    """Texts to what the probe says about a file with each."""
    folder = tmp_path_factory.mktemp("config")
    probe, sources = folder / "probe", native / "sim" / "config"
    warnings = ["-Wall", "-Wextra", "-Werror"]
    sanitizers = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    includes = ["-I", native / "sim", "-isystem", package_file("nlohmann_json", "include")]
    files = [Path(__file__).with_name("config_probe.cpp"), *sources.glob("*.cpp")]
    subprocess.run(["c++", "-std=c++17", *warnings, *sanitizers, *includes, *files, "-o", probe], check=True)

    def read_(*texts: str | bytes, kind: str = "toml") -> list[str]:
        paths = []
        for number, text in enumerate(texts):
            paths.append(folder / f"{number}.{kind}")
            paths[-1].write_bytes(text.encode() if isinstance(text, str) else text)
        done = subprocess.run([probe, *paths], capture_output=True, check=True)
        return [line.replace(f"{folder}/", "") for line in done.stdout.decode().splitlines()]

    return read_


EVERYTHING = Path(__file__).with_name("everything.toml").read_text(encoding="utf-8")


def test_everything_that_toml_files_hold_here(read: Read) -> None:
    (text,) = read(EVERYTHING)
    assert json.loads(text) == {
        "title": 'tab\t quote" \u00e9 \U0001f600',
        "literal key": r"C:\no\escapes",
        "quoted.key": True,
        "a": {"b": {"c": 1, "d e": [1, 2.5, "x", [True, False], {"k": 1}]}},
        "inline": {"x": 1, "y": {"z": "lit"}, "empty": {}, "none": []},
        "hex": 255,
        "oct": 15,
        "bin": 5,
        "big": 2**63 - 1,
        "small": -42,
        "plus": 1,
        "float": -1000500.0,
        "exponent": 0.5,
        "multi": "raw \\ text\n'it''s' ",
        "folded": 'onetwo "" three""',
        "table": {"k": 1, "sub": {"deep": {"k": 2}, "k": 3}},
        "list": [{"k": 1, "inner": {"k": 2}}, {"items": [{"k": 3}, {"k": 4}]}],
        "models": {"rec.onnx": {"latency_us": 15}},
    }


def test_keys_keep_their_order(read: Read) -> None:
    for kind, text in (("toml", "z = 1\na = 2\nm = 3\n"), ("json", '{"z": 1, "a": 2, "m": 3}')):
        assert read(text, kind=kind) == ['{"z":1,"a":2,"m":3}']


def test_line_endings_and_byte_order_mark(read: Read) -> None:
    assert read("\ufeffa = 1\r\n[b]\r\nc = 2\r\n") == ['{"a":1,"b":{"c":2}}']
    assert read("") == ["{}"]
    assert read("a = 1") == ['{"a":1}']


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1\nb = 2020-01-01", "2: dates and times are not supported; write '2020-01-01' as a string"),
        ("a = 07:32:00", "1: dates and times are not supported"),
        ("a = 1\na = 2", "2: key 'a' is defined twice"),
        ("a.b = 1\na.b = 2", "2: key 'b' is defined twice"),
        ("[a]\n[b]\n[a]", "3: table 'a' is defined twice"),
        ("a = 1\n[a]", "2: key 'a' already has a value|2: table 'a' is defined twice"),
        ("[a]\nb.c = 1\n[a.b]", "3: table 'b' is defined twice"),
        ("a = { b = 1 }\na.c = 2", "2: key 'a' is already defined"),
        ("a = { b = 1 }\n[a.c]", "2: key 'a' already has a value and cannot be extended"),
        ("a = [1]\n[[a]]", "2: key 'a' is not an array of tables"),
        ("[[a]]\n[a]", "2: table 'a' is defined twice"),
        ("a = 1 b = 2", "1: unexpected 'b' after the end of the entry"),
        ("a = ", "1: expected a value"),
        ("a", "1: expected '=' after a key but the file ends"),
        ("= 1", "1: expected a key, found '='"),
        ("[a", "1: expected '\\]' at the end of a table header but the file ends"),
        ("[[a]", "1: expected '\\]' at the end of a table header"),
        ("a = foo", "1: 'foo' is not a value; strings need quotes"),
        ("a = True", "1: 'True' is not a value"),
        ("a = 1.", "1: '1.' is not a value"),
        ("a = .5", "1: '.5' is not a value"),
        ("a = 1__0", "1: '1__0' is not a value"),
        ("a = 1 é", "1: unexpected 'é' after the end of the entry"),
        ("a = 0x", "1: '0x' is not a value"),
        ("a = 0xg", "1: '0xg' is not a value"),
        ("a = -0x1", "1: '-0x1' is not a value"),
        ("a = 1e", "1: '1e' is not a value"),
        ("a = 012", "1: '012' has a leading zero"),
        ("a = 9223372036854775808", "1: '9223372036854775808' does not fit in 64 bits"),
        ('\n\na = "x\ny"', "3: the string is not closed"),
        ("a = 'x", "1: the string is not closed"),
        ('a = """x\n\n', '3: the string is not closed with """'),
        (r'a = "\q"', r"1: unknown escape of 'q' in a string; write '\\\\' for a backslash"),
        (r'a = "\u12"', "1: .u needs 4 and .U needs 8 hexadecimal digits"),
        (r'a = "\ud800"', "1: U.d800 is not a Unicode character"),
        ("a = [1\n2]", "2: expected ',' or '\\]' in the array"),
        ("a = [1,\n", "2: expected a value|2: the array is not closed"),
        ("a = { b = 1", "1: expected ',' or '}' in the inline table but the file ends"),
        ("a = " + "[" * 100, "1: tables and values are nested deeper than 64"),
        ("a = " + "{a=" * 100, "1: tables and values are nested deeper than 64"),
        ("a = " + "{a.a.a=" * 30, "1: tables and values are nested deeper than 64"),
        ("[" + "a." * 100000 + "a]", "1: tables and values are nested deeper than 64"),
        ("a." * 100000 + "a = 1", "1: tables and values are nested deeper than 64"),
        ("[[a]]\n" + "".join(f"[[{'a.' * depth}a]]\n" for depth in range(1, 99)), "65: tables and values are nested"),
        ("".join(f"k{number} = 1\n" for number in range(4097)), "4097: a table has more than 4096 keys"),
        ("".join(f"[k{number}]\n" for number in range(4097)), "4097: a table has more than 4096 keys"),
        (r'"a\u0000b" = 1', "1: a key holds a NUL character"),
        ("#" * (2**20 + 1), " has 1048577 bytes; a configuration has at most 1048576"),
    ],
)
def test_a_mistake_is_named_with_its_line(read: Read, text: str, message: str) -> None:
    (answer,) = read(text)
    alternatives = [rf"error: 0\.toml:{part}" for part in message.split("|")]
    assert any(re.match(each, answer) for each in alternatives), answer


@pytest.mark.parametrize(
    "text",
    [
        b"\xff",
        b"\xc0\xaf",
        b"\xe0\x80\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80",
        b"\xe2\x82",
        b"\x80",
    ],
)
def test_text_must_be_utf8(read: Read, text: bytes) -> None:
    assert read(b"a = 1\nb = '" + text + b"'") == ["error: 0.toml:2: the file is not UTF-8 text"]
    assert read(b"a = '\xf0\x9f\x98\x80\xed\x9f\xbf'") == ['{"a":"\U0001f600\ud7ff"}']


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,\n "b": }', "2: syntax error"),
        (" ", "1: the file is empty"),
        ('{"a": 1} x', "1: syntax error"),
        ('{"a": ' + "[" * 100000, " tables and values are nested deeper than 64"),
        ('{"a": ' * 100, " tables and values are nested deeper than 64"),
        ('{"a": {"b": 1, "c": {"b": 1}, "b": 2}}', " key 'b' is defined twice"),
        ("{" + ", ".join(f'"{number}": 1' for number in range(4097)) + "}", " a table has more than 4096 keys"),
        (" " * (2**20 + 1), " has 1048577 bytes; a configuration has at most 1048576"),
        ('{"a": 1e999}', " "),
    ],
)
def test_a_mistake_in_json(read: Read, text: str, message: str) -> None:
    (answer,) = read(text, kind="json")
    assert answer.startswith(f"error: 0.json:{message}")


DAMAGE = (b"", b'"""', b"[[", b"{", b"\\", b"'", b"\n", b"=")  # the empty one stands for any byte


def test_no_input_breaks_the_reader(read: Read) -> None:
    """Damaged files give a value or one line of error; the sanitizers see to the rest."""
    rng = np.random.default_rng(1)
    texts: list[bytes] = []
    for _ in range(400):
        text = bytearray(EVERYTHING.encode())
        for _ in range(int(rng.integers(1, 5))):
            start = int(rng.integers(len(text)))
            damage = DAMAGE[rng.integers(len(DAMAGE))] or bytes([int(rng.integers(256))])
            text[start : start + int(rng.integers(13))] = damage
        texts.append(bytes(text))
    answers = read(*texts)
    assert len(answers) == len(texts)
    assert any(answer.startswith("error: ") for answer in answers)
    assert any(answer.startswith("{") for answer in answers)
