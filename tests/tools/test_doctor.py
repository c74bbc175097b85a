# SPDX-License-Identifier: Apache-2.0
"""The doctor tells what works, and what to do about what does not."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest

import aioascend
from aioascend import BackendInfo, cli, doctor
from aioascend._backend import load_backend
from aioascend._capability_costs import COSTS
from aioascend._self_test import SelfTestError, _compare
from aioascend.doctor import Finding, Report
from aioascend.testing import Simulator

RUNTIME = Path(__file__).resolve().parents[2] / "_native"


def finding(report: Report, subject: str) -> Finding:
    (found,) = [finding for finding in report.findings if finding.subject == subject]
    return found


def test_everything_works_on_the_simulator(sim: Simulator) -> None:
    report = doctor.examine()
    assert report.healthy, doctor.as_text(report)
    assert report.backend is not None
    assert report.backend.path == sim.path
    subjects = [finding.subject for finding in report.findings]
    assert subjects[:5] == ["library", "functions", "openvino", "device 0", "device 1"]
    steps = [finding for finding in report.findings if finding.seconds is not None]
    assert [step.subject for step in steps] == ["copy", "event", "callback", "model", "onnx"]
    assert sim.live("streams") == sim.live("models") == 0


def test_the_self_test_really_uses_the_device(sim: Simulator) -> None:
    launched = sim.callbacks_launched
    report = doctor.examine()
    assert report.healthy, doctor.as_text(report)
    kinds = {record.kind for record in sim.timeline()}
    assert {"memcpy_h2d", "memcpy_d2h", "memset", "event_record", "execute", "callback"} <= kinds
    assert sim.callbacks_launched - launched >= 100


@pytest.mark.parametrize(("kind", "subject"), [("memcpy_h2d", "copy"), ("memset", "callback"), ("execute", "model")])
def test_a_step_that_fails_is_told_and_ends_the_self_test(sim: Simulator, kind: str, subject: str) -> None:
    sim.fail_task(kind=kind, code=507015)
    report = doctor.examine()
    assert not report.healthy
    failed = finding(report, subject)
    assert failed.state == "failed"
    assert "507015" in failed.detail
    assert failed.advice
    steps = ["copy", "event", "callback", "model"]
    reported = [finding.subject for finding in report.findings if finding.subject in steps]
    assert reported == steps[: steps.index(subject) + 1]


def test_a_device_that_gives_no_answer_is_a_failure_not_a_hang(sim: Simulator) -> None:
    with sim.hold(device=0):
        report = doctor.examine(patience=0.2)
    copy = finding(report, "copy")
    assert (copy.state, copy.detail) == ("failed", "no answer within 0.2 s")
    assert "--timeout" in copy.advice


def test_a_device_that_cannot_be_opened(sim: Simulator) -> None:
    sim.fail_call("aclrtSetDevice", code=507033, times=100)
    report = doctor.examine()
    assert finding(report, "device 0").state == "failed"
    assert "507033" in finding(report, "device 1").detail
    assert not [finding for finding in report.findings if finding.seconds is not None]


def test_no_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AIOASCEND_LIBRARY", str(tmp_path / "libascendcl.so"))
    report = doctor.examine()
    assert report.backend is None
    library = finding(report, "library")
    assert library.state == "failed"
    assert f"{tmp_path / 'libascendcl.so'}: no such file" in library.detail
    assert "set_env.sh" in library.advice
    assert json.loads(doctor.as_json(report))["backend"] is None


def test_an_unknown_backend_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOASCEND_BACKEND", "gpu")
    library = finding(doctor.examine(), "library")
    assert (library.state, "'gpu'" in library.detail, bool(library.advice)) == ("failed", True, True)


def test_no_devices(sim: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    none = dataclasses.replace(aioascend.backend_info(), devices=0)
    monkeypatch.setattr(aioascend, "backend_info", lambda: none)
    devices = finding(doctor.examine(), "devices")
    assert devices.state == "failed"
    assert "npu-smi info" in devices.advice


@pytest.mark.parametrize(
    ("environment", "kind", "reason"),
    [
        (
            {"AIOASCEND_LIBRARY": "/opt/lib.so", "AIOASCEND_BACKEND": "sim"},
            "sim",
            "AIOASCEND_LIBRARY=/opt/lib.so asks",
        ),
        ({"AIOASCEND_BACKEND": "sim"}, "sim", "AIOASCEND_BACKEND=sim asks"),
        ({"AIOASCEND_BACKEND": "auto"}, "sim", "no CANN library could be loaded"),
        ({"AIOASCEND_BACKEND": "auto"}, "cann", "it is the first that could be loaded"),
    ],
)
def test_why_this_library(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], kind: str, reason: str) -> None:
    attempts = (
        ("/a.so", "no such file"),
        ("/b.so", "no such file"),
        ("/c.so", "lacks aclInit"),
        ("/d.so", "loaded"),
    )
    info = dataclasses.replace(aioascend.backend_info(), kind=kind, attempts=attempts)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    library = doctor._library(info)
    assert reason in library.detail
    assert library.detail.splitlines()[-3:] == [
        "/c.so: lacks aclInit",
        "/d.so: loaded",
        "2 other places have none; `aioascend backend` lists them",
    ]


def info_of_older_library(*functions: str) -> BackendInfo:
    library = load_backend().library.without(*functions)
    info = aioascend.backend_info()
    return dataclasses.replace(info, capabilities=library.capabilities, missing=library.missing)


def test_missing_functions_and_what_that_costs() -> None:
    found = doctor._functions(info_of_older_library("aclrtGetThreadLastTaskId", "aclGetRecentErrMsg"))
    assert found.state == "note"
    assert found.detail.splitlines() == [
        f"last_task_id is missing: {COSTS['last_task_id']}",
        f"error_message is missing: {COSTS['error_message']}",
    ]
    assert found.advice


def test_what_is_not_used_is_not_missed() -> None:
    assert doctor._functions(info_of_older_library("aclrtGetDeviceUtilizationRate")).state == "ok"


def test_costs_are_of_the_capabilities_that_are_used() -> None:
    sources = [*RUNTIME.glob("runtime/*.cpp"), *RUNTIME.glob("*.pyx")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    used = set(re.findall(r"\bcan(?:\(\))?(?:\.|->)(\w+)", text)) - {"list"}
    assert used - set(COSTS) == set()
    assert set(COSTS) <= set(aioascend.backend_info().capabilities)


def test_openvino_is_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    versions = {"openvino": "2024.6.0"}
    monkeypatch.delenv("AIOASCEND_OPENVINO_LIBRARY", raising=False)
    monkeypatch.setattr(importlib.metadata, "version", versions.__getitem__)
    old = doctor._openvino()
    assert (old.state, 'pip install "aioascend[sim]"' in old.advice) == ("note", True)
    assert "2024.6.0 is older than 2025.1" in old.detail
    versions["openvino"] = "2026.0.0-20000-abc"
    assert doctor._openvino().state == "ok"
    monkeypatch.setenv("AIOASCEND_OPENVINO_LIBRARY", str(tmp_path / "missing.so"))
    assert doctor._openvino().state == "failed"


def test_without_openvino_no_onnx_model_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_openvino", lambda: Finding("openvino", "note", "not installed", "Install it."))
    report = doctor.examine()
    assert report.healthy, doctor.as_text(report)
    steps = [finding.subject for finding in report.findings if finding.seconds is not None]
    assert steps == ["copy", "event", "callback", "model"]


def test_packages_that_are_not_installed_are_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.delenv("AIOASCEND_OPENVINO_LIBRARY", raising=False)
    monkeypatch.setattr(importlib.metadata, "version", absent)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for found in (doctor._openvino(), doctor._loop("uvloop", "pip install uvloop")):
        assert found.state == "note"
        assert "pip install" in found.advice


def test_text_shows_marks_times_and_advice() -> None:
    findings = (
        Finding("library", "ok", "the simulator\nversion 1"),
        Finding("copy", "failed", "it broke", "Mend it.", seconds=0.0015),
    )
    text = doctor.as_text(Report({"aioascend": "1.0"}, None, findings))
    assert text.splitlines() == [
        "aioascend 1.0",
        "",
        "ok     library    the simulator",
        "                  version 1",
        "FAILED copy       it broke (1.5 ms)",
        "                  -> Mend it.",
        "",
        "Something required does not work.",
    ]


def test_exit_status_and_json(sim: Simulator, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["healthy"] is True
    assert report["backend"]["kind"] == "sim"
    assert {"subject", "state", "detail", "advice", "seconds"} == set(report["findings"][0])
    sim.fail_task(kind="memcpy_d2h")
    assert cli.main(["doctor"]) == 1
    assert "FAILED copy" in capsys.readouterr().out


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_a_timeout_that_is_none_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        cli.main(["doctor", "--timeout", seconds])
    assert refused.value.code == 2
    expected = f"argument --timeout: must be a number of seconds above 0 and below 1e6, not '{seconds}'\n"
    assert capsys.readouterr().err.endswith(expected)


def test_data_that_comes_back_changed_is_noticed() -> None:
    sent = np.arange(6)
    received = sent.copy()
    received[4] = 9
    with pytest.raises(SelfTestError, match="1 of 6 elements came back changed, the first at 4: 4 became 9"):
        _compare(sent, received)
