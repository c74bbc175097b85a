// SPDX-License-Identifier: Apache-2.0
#include "aclsim.h"
#include "export.h"
#include "model/engine.h"

extern "C" ACL_EXPORT int aclsimSetEngineLibrary(const char *path) {
    aclsim::engine::set_library(path ? path : "");
    return 0;
}
