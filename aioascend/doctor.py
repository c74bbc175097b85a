# SPDX-License-Identifier: Apache-2.0
"""`aioascend doctor`: what is installed, what works, and what to do about what does not."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import anyio

import aioascend
from aioascend import BackendInfo
from aioascend._arguments import parsed
from aioascend._capability_costs import costs_of
from aioascend._self_test import Step, describe_failure, steps_for
from aioascend._words import counted

__all__ = ["Finding", "Report", "add_arguments", "as_json", "as_text", "examine", "main"]

State = Literal["ok", "note", "failed"]
OPENVINO_NEEDED = (2025, 1)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        subject: What it is about.
        state: "ok", "note" for what is missing but not required, "failed" for what is.
        detail: What was found.
        advice: What to do; empty when there is nothing to do.
        seconds: How long a step of the self-test took; None for the rest.
    """

    subject: str
    state: State
    detail: str
    advice: str = ""
    seconds: float | None = None


@dataclass(frozen=True)
class Report:
    """Everything the doctor found. `backend` is None when no ACL library could be loaded."""

    versions: dict[str, str]
    backend: BackendInfo | None
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether everything that is required works."""
        return all(finding.state != "failed" for finding in self.findings)


def examine(patience: float = 60.0) -> Report:
    """Look at everything, and test device 0. Blocks; opens each device for a moment.

    Args:
        patience: Seconds that each device, and each step of the self-test, may take.
    """
    findings: list[Finding] = []
    info: BackendInfo | None = None
    try:
        info = aioascend.backend_info()
    except ValueError as error:
        findings.append(Finding("library", "failed", str(error), "Correct the variable, or unset it."))
    except aioascend.BackendError as error:
        findings.append(_no_library(error))
    except aioascend.AclError as error:
        findings.append(Finding("library", "failed", str(error), "Look at `npu-smi info`."))
    else:
        engine = [_openvino()] if info.kind == "sim" else []
        findings += [_library(info), _functions(info), *engine]
        steps = steps_for(info.kind, openvino=any(found.state == "ok" for found in engine))
        findings += anyio.run(_devices, info, steps, patience)
    findings += [_loop("uvloop", 'pip install "aioascend[uvloop]"'), _loop("trio", "pip install trio")]
    return Report(_versions(), info, tuple(findings))


def _versions() -> dict[str, str]:
    return {
        "aioascend": aioascend.__version__,
        "Python": platform.python_version(),
        "numpy": importlib.metadata.version("numpy"),
        "system": platform.platform(),
    }


# --- the library ---


def _no_library(error: aioascend.BackendError) -> Finding:
    tried = [f"{path}: {reason}" for path, reason in error.attempts]
    advice = (
        "On a machine with an NPU, source set_env.sh of CANN or set AIOASCEND_LIBRARY to libascendcl.so. "
        "Without one, set AIOASCEND_BACKEND=sim. If the simulator cannot be loaded, install aioascend again."
    )
    return Finding("library", "failed", "\n".join(["none could be loaded", *tried]), advice)


def _library(info: BackendInfo) -> Finding:
    what = "the simulator" if info.kind == "sim" else "CANN"
    name = os.environ.get("AIOASCEND_BACKEND", "auto")
    if path := os.environ.get("AIOASCEND_LIBRARY"):
        why = f"AIOASCEND_LIBRARY={path} asks for it"
    elif name != "auto":
        why = f"AIOASCEND_BACKEND={name} asks for it"
    elif info.kind == "sim":
        why = "no CANN library could be loaded"
    else:
        why = "it is the first that could be loaded"
    there = [f"{path}: {outcome}" for path, outcome in info.attempts if outcome != "no such file"]
    if absent := len(info.attempts) - len(there):
        have = "has" if absent == 1 else "have"
        there.append(f"{counted(absent, 'other place')} {have} none; `aioascend backend` lists them")
    details = [f"{what}, because {why}", f"AscendCL {info.acl_version}, chip {info.soc or 'unknown'}", *there]
    return Finding("library", "ok", "\n".join(details))


def _functions(info: BackendInfo) -> Finding:
    costs = costs_of(info.capabilities)
    if not costs:
        return Finding("functions", "ok", "the library has everything that can be used")
    details = [f"{name} is missing: {cost}" for name, cost in costs.items()]
    return Finding("functions", "note", "\n".join(details), "A newer CANN has them; the rest works without.")


# --- devices ---


async def _devices(info: BackendInfo, steps: Sequence[Step], patience: float) -> list[Finding]:
    if info.devices == 0:
        advice = "Check with `npu-smi info`, and that ASCEND_RT_VISIBLE_DEVICES does not hide the devices."
        return [Finding("devices", "failed", "there are none", advice)]
    findings = [await _memory(info, index, patience) for index in range(info.devices)]
    if findings[0].state == "ok":
        findings += await _self_test(info, steps, patience)
    return findings


async def _memory(info: BackendInfo, index: int, patience: float) -> Finding:
    subject = f"device {index}"
    try:
        with anyio.fail_after(patience):
            async with aioascend.open_device(index) as npu:
                memory = await npu.memory_info()
    except (aioascend.AioascendError, TimeoutError) as error:
        return Finding(subject, "failed", *describe_failure(error, info.kind, patience))
    return Finding(subject, "ok", f"{memory.free / 2**30:.1f} of {memory.total / 2**30:.1f} GiB free")


async def _self_test(info: BackendInfo, steps: Sequence[Step], patience: float) -> list[Finding]:
    """Run the steps on device 0, up to the first that fails."""
    findings = []
    for step in steps:
        finding = await _run_step(step, info, patience)
        findings.append(finding)
        if finding.state == "failed":
            break
    return findings


async def _run_step(step: Step, info: BackendInfo, patience: float) -> Finding:
    try:
        with anyio.fail_after(patience):
            async with aioascend.open_device(0) as npu:
                began = anyio.current_time()
                detail = await step.run(npu)
                seconds = anyio.current_time() - began
    except Exception as error:  # whatever it is, a doctor has to tell instead of falling over
        return Finding(step.name, "failed", *describe_failure(error, info.kind, patience))
    return Finding(step.name, "ok", detail, seconds=seconds)


# --- packages ---


def _openvino() -> Finding:
    install = 'ONNX models cannot run on the simulator without it: pip install "aioascend[sim]"'
    if path := os.environ.get("AIOASCEND_OPENVINO_LIBRARY"):
        if os.path.exists(path):
            return Finding("openvino", "ok", path)
        advice = "AIOASCEND_OPENVINO_LIBRARY has to name libopenvino_c.so, or be unset."
        return Finding("openvino", "failed", f"no such file: {path}", advice)
    try:
        version = importlib.metadata.version("openvino")
    except importlib.metadata.PackageNotFoundError:
        return Finding("openvino", "note", "not installed", install)
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < OPENVINO_NEEDED:
        needed = ".".join(map(str, OPENVINO_NEEDED))
        return Finding("openvino", "note", f"version {version} is older than {needed}", install)
    return Finding("openvino", "ok", f"version {version}")


def _loop(package: str, install: str) -> Finding:
    if importlib.util.find_spec(package) is None:
        return Finding(package, "note", "not installed; needed only to run on its event loop", install)
    return Finding(package, "ok", f"version {importlib.metadata.version(package)}")


# --- output ---

_MARKS = {"ok": "ok", "note": "note", "failed": "FAILED"}


def as_text(report: Report) -> str:
    """The report for people."""
    lines = [", ".join(f"{name} {version}" for name, version in report.versions.items()), ""]
    for finding in report.findings:
        time = "" if finding.seconds is None else f" ({finding.seconds * 1000:.1f} ms)"
        first, *more = f"{finding.detail}{time}".splitlines()
        lines.append(f"{_MARKS[finding.state]:6} {finding.subject:10} {first}")
        lines += [f"{'':18}{line}" for line in more]
        if finding.advice:
            lines.append(f"{'':18}-> {finding.advice}")
    verdict = "Everything that is required works." if report.healthy else "Something required does not work."
    return "\n".join([*lines, "", verdict])


def as_json(report: Report) -> str:
    """The report for programs: the fields of `Report`, and "healthy"."""
    return json.dumps({"healthy": report.healthy, **dataclasses.asdict(report)}, indent=2)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `aioascend doctor`."""
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--timeout",
        type=parsed(float, lambda seconds: 0 < seconds < 1e6, "a number of seconds above 0 and below 1e6"),
        default=60.0,
        metavar="SECONDS",
        help="how long each device and each step of the self-test may take (default 60)",
    )


def main(args: argparse.Namespace) -> int:
    """Run with parsed arguments; the exit status is 1 when something required does not work."""
    report = examine(args.timeout)
    print(as_json(report) if args.json else as_text(report))
    return 0 if report.healthy else 1
