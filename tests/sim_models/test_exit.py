# SPDX-License-Identifier: Apache-2.0
"""A process may end while models compute, and may fork afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sim_models.simulator import engine_path, library_path

CHILD = """
import ctypes, os, sys
from ctypes import byref, c_int64, c_size_t, c_uint32, c_void_p

acl = ctypes.CDLL(sys.argv[1])
for name in ("aclmdlCreateDataset", "aclCreateDataBuffer", "aclCreateTensorDesc"):
    getattr(acl, name).restype = c_void_p
acl.aclsimSetEngineLibrary(sys.argv[2].encode())
acl.aclInit(None)
acl.aclrtSetDevice(0)
model, stream = c_uint32(), c_void_p()
assert acl.aclmdlLoadFromFile(sys.argv[3].encode(), byref(model)) == 0
assert acl.aclrtCreateStream(byref(stream)) == 0

def dataset(size):
    memory = c_void_p()
    assert acl.aclrtMalloc(byref(memory), c_size_t(size), 0) == 0
    assert acl.aclrtMemset(memory, c_size_t(size), 0, c_size_t(size)) == 0
    made = c_void_p(acl.aclmdlCreateDataset())
    acl.aclmdlAddDatasetBuffer(made, c_void_p(acl.aclCreateDataBuffer(memory, c_size_t(size))))
    return made

inputs, outputs = dataset(2 * 3 * 48 * 320 * 4), dataset(2 * 40 * 6625 * 4)
desc = c_void_p(acl.aclCreateTensorDesc(0, 4, (c_int64 * 4)(2, 3, 48, 320), 2))
assert acl.aclmdlSetDatasetTensorDesc(inputs, desc, c_size_t(0)) == 0
for _ in range(8):
    assert acl.aclmdlExecuteAsync(model, inputs, outputs, stream) == 0
"""
ENDINGS = {
    "returning": "",
    "an exception": "raise SystemExit(0)",
    "finalizing": "acl.aclFinalize()",
    "a fork": """
pid = os.fork()
if pid == 0:
    code = acl.aclmdlExecuteAsync(model, inputs, outputs, stream)
    code = 1 if code != 507000 else acl.aclmdlUnload(model) != 507000
    sys.exit(code)
assert os.waitpid(pid, 0)[1] == 0
assert acl.aclrtSynchronizeStream(stream) == 0
""",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_process_ends_with_models_computing(recognizer: Path, ending: str) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            CHILD + ENDINGS[ending],
            library_path(),
            engine_path(),
            recognizer,
        ],
        env={**os.environ, "PYTHONFAULTHANDLER": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
