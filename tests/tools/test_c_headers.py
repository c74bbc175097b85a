# SPDX-License-Identifier: Apache-2.0
"""The package brings what a C program needs: the library and its headers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from aioascend._backend import simulator_library

PROGRAM = """
#include <stdio.h>
#include "acl/acl.h"
#include "aclsim.h"
int main(void) {
    uint32_t devices = 0;
    if (aclInit(NULL) != 0 || aclrtGetDeviceCount(&devices) != 0) return 1;
    printf("%s %u\\n", aclsimVersion(), devices);
    return aclFinalize();
}
"""


def test_a_program_compiles_against_the_installed_headers(tmp_path: Path) -> None:
    folder = simulator_library().parent
    if not (folder / "include").exists():
        pytest.fail(f"{folder} has no headers; install the package instead of running from the source tree")
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(PROGRAM)
    subprocess.run(
        [
            "cc",
            "-std=c11",
            "-Wall",
            "-Werror",
            source,
            f"-I{folder}/include",
            f"-L{folder}",
            "-lascendcl",
            "-o",
            program,
        ],
        check=True,
    )
    done = subprocess.run([program], env={"LD_LIBRARY_PATH": str(folder)}, capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == "aioascend-sim"
    assert int(done.stdout.split()[-1]) >= 1
