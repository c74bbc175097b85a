# SPDX-License-Identifier: Apache-2.0
"""Which ACL library is used: CANN where there is one, the bundled simulator elsewhere."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aioascend import _native
from aioascend.errors import BackendError

__all__ = ["Backend", "BackendInfo", "backend_info", "load_backend", "simulator_library"]

Kind = Literal["cann", "sim"]

_LIBRARY = "libascendcl.so"
_PREFIXES = (
    "/usr/local/Ascend/ascend-toolkit/latest",
    "/usr/local/Ascend/latest",
    "/usr/local/Ascend/nnrt/latest",
    "/usr/local/Ascend/cann",
    "~/Ascend/ascend-toolkit/latest",
    "~/Ascend/latest",
)


@dataclass(frozen=True)
class Backend:
    """A loaded ACL library and how it was found."""

    library: _native.Library
    kind: Kind
    attempts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class BackendInfo:
    """What `backend_info` tells.

    Attributes:
        kind: "cann" for a real ACL library, "sim" for the bundled simulator.
        path: File of the library.
        acl_version: Version of the ACL API it speaks (aclrtGetVersion).
        soc: Name of the chip (aclrtGetSocName); the simulator tells that of its profile.
        devices: How many devices there are (aclrtGetDeviceCount).
        capabilities: Each optional capability, and whether the library has it.
        missing: ACL functions the library lacks; the runtime works without them, see docs/backends.md.
        attempts: Everything that was tried, in order: pairs of a path and what came of it.
    """

    kind: Kind
    path: str
    acl_version: str
    soc: str | None
    devices: int
    capabilities: dict[str, bool]
    missing: tuple[str, ...]
    attempts: tuple[tuple[str, str], ...]


def simulator_library() -> Path:
    """The library of the bundled simulator, which C, C++ and pyACL programs can load too."""
    spec = importlib.util.find_spec("aioascend.sim")
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    candidates = [Path(folder) / _LIBRARY for folder in folders]
    for candidate in candidates:
        if candidate.exists():
            return candidate
    return candidates[0] if candidates else Path(__file__).parent / "sim" / _LIBRARY


def _cann_candidates() -> list[str]:
    """Paths of a CANN library worth trying, in order, without duplicates."""
    found: list[str] = []
    for variable in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"):
        if home := os.environ.get(variable):
            found += [f"{home}/lib64/{_LIBRARY}", f"{home}/runtime/lib64/{_LIBRARY}"]
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if folder:
            found.append(f"{folder}/{_LIBRARY}")
    for prefix in _PREFIXES:
        home = os.path.expanduser(prefix)
        found += [f"{home}/lib64/{_LIBRARY}", f"{home}/runtime/lib64/{_LIBRARY}"]
    return list(dict.fromkeys(found))


def _try_paths(paths: list[str], attempts: list[tuple[str, str]]) -> _native.Library | None:
    for path in paths:
        if not os.path.exists(path):
            attempts.append((path, "no such file"))
            continue
        if not os.path.isfile(path):  # opening a pipe would wait for whoever writes into it
            attempts.append((path, "not a file"))
            continue
        try:
            library = _native.load_library(path)
        except BackendError as error:
            attempts.append((path, str(error)))
            continue
        attempts.append((path, "loaded"))
        return library
    return None


def _prepare_simulator(library: _native.Library) -> None:
    """Checks the profile that the environment asks for, which the simulator itself would only warn of, and tells it
    where the OpenVINO of this environment is; it loads it with the first model."""
    profile = os.environ.get("AIOASCEND_SIM_PROFILE")
    if profile and ctypes.CDLL(library.path).aclsimSetProfile(-1, os.fsencode(profile)) != 0:
        raise BackendError(f"AIOASCEND_SIM_PROFILE={profile} is neither a device profile nor the file of one; unset it")
    spec = importlib.util.find_spec("openvino")
    if spec is None or not spec.submodule_search_locations:
        return
    for folder in spec.submodule_search_locations:
        for engine in sorted(Path(folder).glob("libs/libopenvino_c.so*")):
            ctypes.CDLL(library.path).aclsimSetEngineLibrary(os.fsencode(engine))
            return


def _is_simulator(library: _native.Library) -> bool:
    return hasattr(ctypes.CDLL(library.path), "aclsimVersion")


def _find(name: str, path: str | None) -> Backend:
    attempts: list[tuple[str, str]] = []
    library: _native.Library | None = None
    if path is not None:
        library = _try_paths([path], attempts)
    else:
        if name in ("auto", "cann"):
            library = _try_paths(_cann_candidates(), attempts)
        if library is None and name in ("auto", "sim"):
            library = _try_paths([str(simulator_library())], attempts)
    if library is None:
        if path is not None:
            raise BackendError(
                f"AIOASCEND_LIBRARY={path} names no library that can be used; correct it or unset it. Tried:", attempts
            )
        raise BackendError(
            f"no ACL library could be loaded for backend {name!r}. On a machine with an NPU source CANN's set_env.sh "
            "or set AIOASCEND_LIBRARY to libascendcl.so; without one use AIOASCEND_BACKEND=sim. Tried:",
            attempts,
        )
    kind: Kind = "cann"
    if _is_simulator(library):
        kind = "sim"
        _prepare_simulator(library)
    return Backend(library, kind, tuple(attempts))


_lock = threading.Lock()
_found: dict[tuple[str, str | None], Backend] = {}


def load_backend(name: str | None = None) -> Backend:
    """The ACL library to use; loaded once. Blocks on first use.

    Args:
        name: "auto", "cann" or "sim"; None takes AIOASCEND_BACKEND, else "auto". AIOASCEND_LIBRARY, the path of a
            library, goes before both unless a name is given here.

    Raises:
        ValueError: an unknown name.
        BackendError: nothing could be loaded; lists every attempt.
    """
    path = os.environ.get("AIOASCEND_LIBRARY") if name is None else None
    chosen = name if name is not None else os.environ.get("AIOASCEND_BACKEND") or "auto"
    if chosen not in ("auto", "cann", "sim"):
        source = "backend" if name is not None else "AIOASCEND_BACKEND"
        raise ValueError(f"{source} must be 'auto', 'cann' or 'sim', not {chosen!r}")
    key = (chosen, path or None)
    with _lock:
        if key not in _found:
            _found[key] = _find(*key)
        return _found[key]


def backend_info(backend: str | None = None) -> BackendInfo:
    """Which library runs, what it can do, and everything that was tried to find it. Blocks on first use.

    Args:
        backend: "auto", "cann" or "sim"; None as for `open_device`.

    Raises:
        BackendError: no library could be loaded; lists every attempt.
    """
    loaded = load_backend(backend)
    library = loaded.library
    return BackendInfo(
        kind=loaded.kind,
        path=library.path,
        acl_version=library.acl_version(),
        soc=library.soc_name(),
        devices=library.device_count(),
        capabilities=library.capabilities,
        missing=library.missing,
        attempts=loaded.attempts,
    )
