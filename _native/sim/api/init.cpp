// SPDX-License-Identifier: Apache-2.0
// aclInit, aclFinalize and versions.
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

#include "config/value.h"
#include "core/context.h"
#include "core/device.h"
#include "core/settings.h"
#include "core/thread_state.h"
#include "export.h"

using namespace aclsim;

namespace {

struct Library {
    std::mutex mutex;
    uint64_t references = 0;
    bool finalized = false;
    bool configured = false;
    std::string config;  // text of the first configuration
};

Library &library() {
    static Library *instance = new Library;
    return *instance;
}

// Numbers are written as text in this file by custom.
std::string scalar(const config::Value &value) {
    return value.is_string()           ? value.get<std::string>()
           : value.is_number_integer() ? value.dump()
                                       : std::string();
}

aclError apply_config(const std::string &text, const char *path) {
    config::Value root;
    try {
        root = config::parse_json(text, path);
    } catch (const std::exception &problem) {
        return fail(ACL_ERROR_PARSE_FILE, "aclInit: %s", problem.what());
    }
    if (!root.is_object()) {
        return fail(ACL_ERROR_PARSE_FILE, "aclInit: %s does not hold a JSON object", path);
    }
    if (root.contains("err_msg_mode")) {
        const std::string mode = scalar(root["err_msg_mode"]);
        if (mode != "0" && mode != "1") {
            return fail(ACL_ERROR_INVALID_PARAM,
                        "aclInit: %s: err_msg_mode '%s' is neither \"0\" (messages per thread) "
                        "nor \"1\" (per process)",
                        path, mode.c_str());
        }
        settings().process_messages = mode == "1";
    }
    if (root.contains("defaultDevice") && root["defaultDevice"].is_object() &&
        root["defaultDevice"].contains("default_device")) {
        const std::string device = scalar(root["defaultDevice"]["default_device"]);
        int id = -1;
        char rest = 0;
        if (std::sscanf(device.c_str(), "%d%c", &id, &rest) != 1 || device_at(id) == nullptr) {
            return fail(ACL_ERROR_INVALID_PARAM,
                        "aclInit: %s: default_device '%s' is no device id; ids are 0 to %d", path,
                        device.c_str(), device_count() - 1);
        }
        settings().default_device = id;
    }
    return 0;
}

// library().mutex held.
aclError read_config(const char *path) {
    Library &lib = library();
    std::string text;
    if (path != nullptr && *path != '\0') {
        try {
            text = config::read_file(path);
        } catch (const std::exception &problem) {
            return fail(ACL_ERROR_INVALID_FILE, "aclInit: %s", problem.what());
        }
    }
    if (lib.configured && text != lib.config) {
        return fail(ACL_ERROR_INVALID_PARAM,
                    "aclInit: the configuration %s differs from the one this process started "
                    "with; it cannot be changed",
                    path == nullptr ? "(none)" : path);
    }
    if (!text.empty()) {
        if (aclError code = apply_config(text, path)) {
            return code;
        }
    }
    lib.config = text;
    lib.configured = true;
    return 0;
}

void finalize() {
    library().references = 0;
    library().finalized = true;
    settings().default_device = -1;
}

}  // namespace

extern "C" {

ACL_EXPORT aclError aclInit(const char *configPath) {
    ACL_ENTER(aclInit);
    std::lock_guard<std::mutex> lock(library().mutex);
    if (library().references > 0) {
        ++library().references;
        return fail(ACL_ERROR_REPEAT_INITIALIZE, "aclInit was called before; this is harmless");
    }
    if (aclError code = read_config(configPath)) {
        return code;
    }
    library().references = 1;
    library().finalized = false;
    return 0;
}

ACL_EXPORT aclError aclFinalize() {
    ACL_ENTER(aclFinalize);
    std::lock_guard<std::mutex> lock(library().mutex);
    if (library().finalized) {
        return fail(ACL_ERROR_REPEAT_FINALIZE, "aclFinalize was called before");
    }
    finalize();
    return 0;
}

ACL_EXPORT aclError aclFinalizeReference(uint64_t *refCount) {
    ACL_ENTER(aclFinalizeReference);
    std::lock_guard<std::mutex> lock(library().mutex);
    Library &lib = library();
    if (lib.references == 0) {
        return fail(ACL_ERROR_REPEAT_FINALIZE, "aclFinalizeReference: there is no aclInit left to undo");
    }
    if (lib.references == 1) {
        finalize();
    } else {
        --lib.references;
    }
    if (refCount != nullptr) {
        *refCount = lib.references;
    }
    return 0;
}

ACL_EXPORT aclError aclrtGetVersion(int32_t *majorVersion, int32_t *minorVersion, int32_t *patchVersion) {
    ACL_ENTER(aclrtGetVersion);
    if (majorVersion == nullptr || minorVersion == nullptr || patchVersion == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetVersion: an output pointer is NULL");
    }
    *majorVersion = 1;
    *minorVersion = 17;
    *patchVersion = 0;
    return 0;
}

ACL_EXPORT aclError aclsysGetCANNVersion(aclCANNPackageName name, aclCANNPackageVersion *version) {
    ACL_ENTER(aclsysGetCANNVersion);
    if (version == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclsysGetCANNVersion: version is NULL");
    }
    if (static_cast<uint32_t>(name) > ACL_PKG_NAME_DRIVER) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclsysGetCANNVersion: there is no package number %d",
                    static_cast<int>(name));
    }
    *version = aclCANNPackageVersion{};
    std::strcpy(version->version, "9.1.0");
    std::strcpy(version->majorVersion, "9");
    std::strcpy(version->minorVersion, "1");
    std::strcpy(version->releaseVersion, "0");
    return 0;
}

ACL_EXPORT aclError aclsysGetVersionStr(char *pkgName, char *versionStr) {
    ACL_ENTER(aclsysGetVersionStr);
    if (pkgName == nullptr || versionStr == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclsysGetVersionStr: a pointer is NULL");
    }
    if (std::strcmp(pkgName, "runtime") != 0 && std::strcmp(pkgName, "driver") != 0) {
        return fail(ACL_ERROR_INVALID_PARAM,
                    "aclsysGetVersionStr: no package '%s'; there are runtime and driver", pkgName);
    }
    std::strcpy(versionStr, "9.1.0");
    return 0;
}

ACL_EXPORT aclError aclsysGetVersionNum(char *pkgName, int32_t *versionNum) {
    ACL_ENTER(aclsysGetVersionNum);
    if (pkgName == nullptr || versionNum == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclsysGetVersionNum: a pointer is NULL");
    }
    if (std::strcmp(pkgName, "runtime") != 0 && std::strcmp(pkgName, "driver") != 0) {
        return fail(ACL_ERROR_INVALID_PARAM,
                    "aclsysGetVersionNum: no package '%s'; there are runtime and driver", pkgName);
    }
    *versionNum = 9 * 10000000 + 1 * 100000;
    return 0;
}

ACL_EXPORT const char *aclrtGetSocName() {
    ACL_ENTER_OR(aclrtGetSocName, nullptr);
    Device *device = device_at(0);
    if (device == nullptr) {
        return nullptr;
    }
    Lock lock(device->mutex);
    return intern(device->profile().soc_name);
}

ACL_EXPORT aclError aclGetCannAttribute(aclCannAttr cannAttr, int32_t *value) {
    ACL_ENTER(aclGetCannAttribute);
    if (value == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclGetCannAttribute: value is NULL");
    }
    switch (cannAttr) {
        case ACL_CANN_ATTR_INF_NAN:
        case ACL_CANN_ATTR_BF16: *value = 1; return 0;
        case ACL_CANN_ATTR_JIT_COMPILE: *value = 0; return 0;
        default:
            return fail(ACL_ERROR_INVALID_PARAM, "aclGetCannAttribute: there is no attribute %d",
                        static_cast<int>(cannAttr));
    }
}

}  // extern "C"
