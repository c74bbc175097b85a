// SPDX-License-Identifier: Apache-2.0
// Any bytes as a device profile: the device works with it, or it is refused with a message and the old one stays.
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "target.h"

using fuzz::require;

namespace {

// A file of the process's own, whose name has no extension: read as TOML.
struct File {
    File() : descriptor(memfd_create("profile", MFD_CLOEXEC)), path("/proc/self/fd/" + std::to_string(descriptor)) {
        require(descriptor >= 0, "no file");
    }
    void write(const uint8_t *data, size_t size) const {
        require(ftruncate(descriptor, 0) == 0 && pwrite(descriptor, data, size, 0) == static_cast<ssize_t>(size),
                "the file cannot be written");
    }
    const int descriptor;
    const std::string path;
};

// Uses the speeds: an hour for each part of a task is the most that a profile can ask for.
void work() {
    void *device = nullptr;
    char host[64] = {};
    if (const int code = aclrtMalloc(&device, sizeof host, ACL_MEM_MALLOC_HUGE_FIRST)) {
        fuzz::require_refusal(code, {ACL_ERROR_RT_MEMORY_ALLOCATION});  // it has very little
        return;
    }
    constexpr uint64_t a_day_ns = 86400ull * 1000 * 1000 * 1000;
    const uint64_t before = aclsimNow();
    require(aclrtMemcpy(device, sizeof host, host, sizeof host, ACL_MEMCPY_HOST_TO_DEVICE) == 0, "a copy fails");
    require(aclrtMemcpy(host, sizeof host, device, sizeof host, ACL_MEMCPY_DEVICE_TO_HOST) == 0, "a copy fails");
    const uint64_t after = aclsimNow();
    require(after >= before && after - before < a_day_ns, "time goes wrong");
    require(aclrtFree(device) == 0, "memory cannot be freed");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const File *file = new File;
    require(aclsimReset() == 0 && aclsimSetClock(1) == 0, "the simulator does not start");
    require(aclrtSetDevice(0) == 0, "the device does not start");
    file->write(data, size);
    if (const int code = aclsimSetProfile(0, file->path.c_str())) {
        fuzz::require_refusal(code, {ACL_ERROR_RT_PARAM_INVALID});
    }
    work();
    return 0;
}
