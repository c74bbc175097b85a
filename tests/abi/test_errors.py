# SPDX-License-Identifier: Apache-2.0
"""The tree of exceptions and the table of codes behind it."""

from __future__ import annotations

import copy
import importlib.util
import json
import pickle
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from aioascend import _error_table, errors

FAMILIES = {
    "ArgumentError": errors.AclError,
    "ContextError": errors.AclError,
    "ResourceError": errors.AclError,
    "OutOfMemoryError": errors.ResourceError,
    "AclTimeoutError": errors.AclError,
    "TaskError": errors.AclError,
    "ModelError": errors.AclError,
    "DeviceError": errors.AclError,
    "DeviceLostError": errors.DeviceError,
    "UnsupportedError": errors.AclError,
}


def test_every_code_of_the_abi_has_an_exception(abi: dict[str, Any]) -> None:
    codes = {
        constant["value"]: name
        for name, constant in abi["constants"].items()
        if name.startswith("ACL_ERROR_") and constant["value"] != 0
    }
    assert len(codes) > 200
    assert _error_table.CODES.keys() == codes.keys()
    for code, name in codes.items():
        error = errors.error_from_code(code, "aclrtExample")
        assert (error.code, error.name) == (code, name)
        assert type(error).__name__ == _error_table.CODES[code].family
        assert error.hint.endswith(".")
        assert error.retry in {"caller", "retry", "elsewhere", "gone"}
        assert str(code) in str(error)
        assert name in str(error)
        assert error.hint in str(error)


def test_the_families_are_classes_with_the_parents_of_the_table(abi_folder: Path) -> None:
    table = json.loads((abi_folder / "error_table.json").read_text(encoding="utf-8"))
    assert table["families"].keys() == FAMILIES.keys()
    for name, parent in FAMILIES.items():
        cls = getattr(errors, name)
        assert cls.__bases__[0] is parent
        assert table["families"][name].get("parent", "AclError") == parent.__name__


def test_the_tree() -> None:
    exceptions = [getattr(errors, name) for name in errors.__all__ if name[0].isupper()]
    assert all(issubclass(cls, errors.AioascendError) and cls.__doc__ for cls in exceptions)
    assert issubclass(errors.AclTimeoutError, TimeoutError)
    assert issubclass(errors.DependencyError, errors.AclError)
    assert issubclass(errors.ReportLostError, errors.AclError)
    for own in (errors.RuntimeClosedError, errors.BackendError, errors.ForkError):
        assert not issubclass(own, errors.AclError)


def test_what_is_transient_is_worth_another_try() -> None:
    assert errors.is_transient(errors.error_from_code(207001))
    assert errors.is_transient(errors.DependencyError.behind(errors.TaskError(507015)))
    assert not errors.is_transient(errors.error_from_code(507015))
    assert not errors.is_transient(errors.DeviceLostError(107022))
    assert not errors.is_transient(errors.RuntimeClosedError("closed"))
    assert not errors.is_transient(ValueError())


@pytest.mark.parametrize(
    ("code", "cls", "retry"),
    [
        (107000, errors.ArgumentError, "caller"),
        (107002, errors.ContextError, "caller"),
        (207008, errors.ResourceError, "retry"),
        (207001, errors.OutOfMemoryError, "retry"),
        (507046, errors.AclTimeoutError, "retry"),
        (507015, errors.TaskError, "caller"),
        (545001, errors.ModelError, "caller"),
        (507899, errors.DeviceError, "elsewhere"),
        (507010, errors.DeviceLostError, "gone"),
        (200001, errors.UnsupportedError, "elsewhere"),
    ],
)
def test_the_class_of_a_code(code: int, cls: type[errors.AclError], retry: str) -> None:
    error = errors.error_from_code(code)
    assert type(error) is cls
    assert error.retry == retry


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        (107998, errors.ArgumentError),
        (207998, errors.ResourceError),
        (307998, errors.TaskError),
        (507998, errors.DeviceError),
        (145998, errors.ModelError),
        (545998, errors.ModelError),
        (-1, errors.AclError),
        (7, errors.AclError),
        (999999, errors.AclError),
    ],
)
def test_an_unlisted_code_gets_the_family_of_its_range(code: int, cls: type[errors.AclError]) -> None:
    error = errors.error_from_code(code, "aclrtMalloc")
    assert type(error) is cls
    assert error.name == "unknown"
    assert f"aclrtMalloc failed with {code} (unknown)" in str(error)


def test_success_is_no_error() -> None:
    with pytest.raises(ValueError, match="code 0 means success, not an error of aclrtMalloc"):
        errors.error_from_code(0, "aclrtMalloc")


def test_the_message_says_where_what_and_the_way_out() -> None:
    error = errors.error_from_code(207001, "aclrtMalloc", " 3 bytes left \n", device=1, stream=4)
    assert (error.where, error.detail, error.device, error.stream) == ("aclrtMalloc", "3 bytes left", 1, 4)
    assert str(error) == (
        "aclrtMalloc failed with 207001 (ACL_ERROR_RT_MEMORY_ALLOCATION) on device 1, stream 4: "
        f"3 bytes left. {error.hint}"
    )
    bare = errors.error_from_code(207001)
    assert (bare.device, bare.stream, bare.detail) == (None, None, "")
    assert str(bare) == f"ACL call failed with 207001 (ACL_ERROR_RT_MEMORY_ALLOCATION): {bare.hint}"


def test_a_dependency_error_carries_the_original() -> None:
    cause = errors.error_from_code(507015, "aclmdlExecuteAsync", stream=3)
    error = errors.DependencyError.behind(cause, "memcpy", device=0, stream=5)
    assert error.__cause__ is cause
    assert (error.code, error.name) == (cause.code, cause.name)
    assert (cause.retry, error.retry) == ("caller", "retry")  # it is not the one at fault
    lost = errors.DependencyError.behind(errors.DeviceLostError(507899), "memcpy")
    assert lost.retry == "gone"
    assert "reset" in lost.hint
    assert (error.where, error.device, error.stream) == ("memcpy", 0, 5)
    assert str(error) == f"memcpy ran behind a failed one on device 0, stream 5: {cause}"


def test_a_lost_report_needs_no_code() -> None:
    silent = errors.ReportLostError(0, "memcpy", stream=2)
    assert str(silent).startswith("the completion report of memcpy never came on stream 2: ")
    lost = errors.ReportLostError(507010, "memcpy")
    assert "never came (507010 ACL_ERROR_RT_LOST_HEARTBEAT): " in str(lost)
    assert lost.retry == "gone"


@pytest.mark.parametrize(
    "error",
    [
        errors.error_from_code(107000, "aclrtMalloc", "size is 0", device=3, stream=4),
        errors.error_from_code(507046),
        errors.DependencyError.behind(errors.error_from_code(507015, "execute"), "memcpy", stream=1),
        errors.ReportLostError(0, "memcpy"),
        errors.BackendError("no ACL library", [("/a/libascendcl.so", "no such file")]),
        errors.RuntimeClosedError("stream 3 is closed"),
        errors.ForkError("forked"),
        errors.QueueFullError("the batcher", 8, 8, 0.25),
        errors.DeadlineError("a request", 1.5, started=False),
    ],
    ids=lambda error: type(error).__name__,
)
def test_exceptions_survive_pickle_and_copy(error: errors.AioascendError) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)


def test_a_backend_error_lists_what_was_tried() -> None:
    error = errors.BackendError("no ACL library was found", [("a.so", "no such file"), ("b.so", "not ELF")])
    assert error.attempts == [("a.so", "no such file"), ("b.so", "not ELF")]
    assert str(error) == "no ACL library was found\n  a.so: no such file\n  b.so: not ELF"


@pytest.fixture
def errors_output(abi_folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("errors_output", abi_folder / "errors_output.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda abi, table: table["families"]["TaskError"]["codes"].append(107000), "107000 is in Argument"),
        (lambda abi, table: table["families"]["TaskError"]["codes"].remove(507015), r"family: \[507015\]"),
        (lambda abi, table: table["hints"].update({"42": "Never."}), r"hint for codes .* not have: \[42\]"),
        (lambda abi, table: table["retry"].update({"507015": "soon"}), "507015 has the unknown retry class"),
        (
            lambda abi, table: abi["constants"].update(ACL_ERROR_TWIN={"value": 107000}),
            "107000 has two names: ACL_ERROR_RT_PARAM_INVALID, ACL_ERROR_TWIN",
        ),
    ],
    ids=["two families", "no family", "unknown hint", "unknown retry class", "two names"],
)
def test_the_generator_refuses_a_bad_table(
    change: Any, message: str, abi: dict[str, Any], abi_folder: Path, errors_output: ModuleType
) -> None:
    table = json.loads((abi_folder / "error_table.json").read_text(encoding="utf-8"))
    changed = copy.deepcopy(abi)
    change(changed, table)
    with pytest.raises(SystemExit, match=message):
        errors_output.build_rows(changed, table)
