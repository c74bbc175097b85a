// SPDX-License-Identifier: Apache-2.0
// Control interface: devices, profiles, clock, hold and step.
#include "aclsim.h"
#include "control/access.h"
#include "core/calls.h"
#include "core/memory.h"
#include "core/settings.h"
#include "export.h"

using namespace aclsim;

extern "C" {

ACL_EXPORT const char *aclsimVersion() { return "aioascend-sim 0.1"; }

ACL_EXPORT int aclsimReset() {
    settings().reset();
    reset_calls();
    sim_clock().set_virtual(false);
    set_profile_directory("");
    set_device_count(0);
    for (Device *device : open_devices()) {
        Lock lock(device->mutex);
        device->reset_controls();
        lock.unlock();
        wake_report_groups(*device);
    }
    return 0;
}

ACL_EXPORT int aclsimSetDeviceCount(int32_t count) {
    if (count < 1 || !set_device_count(count)) {
        return fail_quietly(ACL_ERROR_RT_PARAM_INVALID, "aclsimSetDeviceCount: %d is not between 1 and %d",
                            count, max_devices);
    }
    return 0;
}

ACL_EXPORT int aclsimSetProfile(int32_t device, const char *name_or_path) {
    Profile profile;
    std::string error;
    if (name_or_path == nullptr || !load_profile(name_or_path, &profile, &error)) {
        return fail_quietly(ACL_ERROR_RT_PARAM_INVALID, "aclsimSetProfile: %s",
                            name_or_path == nullptr ? "the name is NULL" : error.c_str());
    }
    return each_device("aclsimSetProfile", device, [&](Device &one) { one.set_profile(profile); });
}

ACL_EXPORT int aclsimSetProfileDirectory(const char *path) {
    set_profile_directory(path == nullptr ? "" : path);
    return 0;
}

ACL_EXPORT int aclsimSetClock(int mode) {
    if (mode != 0 && mode != 1) {
        return fail_quietly(ACL_ERROR_RT_PARAM_INVALID,
                            "aclsimSetClock: mode %d is neither 0 (real) nor 1 (virtual)", mode);
    }
    sim_clock().set_virtual(mode == 1);
    return 0;
}

ACL_EXPORT uint64_t aclsimNow() { return sim_clock().now(); }

static int hold_stream(const char *function, void *stream, bool on) {
    Stream *found = nullptr;
    if (aclError code = control_stream(function, stream, &found)) {
        return code;
    }
    Lock lock(found->device->mutex);
    found->device->hold(found, on);
    return 0;
}

ACL_EXPORT int aclsimHoldStream(void *stream) { return hold_stream("aclsimHoldStream", stream, true); }

ACL_EXPORT int aclsimReleaseStream(void *stream) { return hold_stream("aclsimReleaseStream", stream, false); }

ACL_EXPORT int aclsimHoldDevice(int32_t device) {
    return each_device("aclsimHoldDevice", device, [](Device &one) { one.hold(nullptr, true); });
}

ACL_EXPORT int aclsimReleaseDevice(int32_t device) {
    sim_clock().freeze();  // all devices resume at one moment of virtual time
    const aclError code =
        each_device("aclsimReleaseDevice", device, [](Device &one) { one.hold(nullptr, false); });
    sim_clock().thaw();
    return code;
}

ACL_EXPORT int aclsimStep(void *stream, uint64_t n) {
    Stream *found = nullptr;
    if (aclError code = control_stream("aclsimStep", stream, &found)) {
        return code;
    }
    Lock lock(found->device->mutex);
    if (!found->held) {
        lock.unlock();
        return fail_quietly(ACL_ERROR_RT_PARAM_INVALID,
                            "aclsimStep: stream %d is not held; call aclsimHoldStream first", found->id);
    }
    found->device->step(*found, n);
    return 0;
}

static int wait_for(const char *function, void *stream, HostWaiter::For what, uint64_t n,
                    int32_t timeout_ms) {
    Stream *found = nullptr;
    if (aclError code = control_stream(function, stream, &found)) {
        return code;
    }
    Lock lock(found->device->mutex);
    HostWaiter waiter(what, found, n);
    waiter.control = true;
    const aclError code = found->device->wait(lock, waiter, timeout_ms, ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
    const unsigned long long finished = found->finished;
    const unsigned blocked = found->sync_waiters + found->space_waiters;
    lock.unlock();
    return code == 0
               ? 0
               : fail_quietly(code,
                              "%s: waited %d ms for %llu; the stream has finished %llu tasks and %u threads "
                              "wait in it",
                              function, timeout_ms, static_cast<unsigned long long>(n), finished, blocked);
}

ACL_EXPORT int aclsimWaitTasks(void *stream, uint64_t n, int32_t timeout_ms) {
    return wait_for("aclsimWaitTasks", stream, HostWaiter::For::Finished, n, timeout_ms);
}

ACL_EXPORT int aclsimWaitBlocked(void *stream, uint32_t n, int32_t timeout_ms) {
    return wait_for("aclsimWaitBlocked", stream, HostWaiter::For::Blocked, n, timeout_ms);
}

}  // extern "C"
