// SPDX-License-Identifier: Apache-2.0
// Devices: set, reset, synchronise, abort, peers.
#include <array>
#include <atomic>

#include "core/context.h"
#include "core/device.h"
#include "core/launch.h"
#include "core/peer.h"
#include "core/settings.h"
#include "core/thread_state.h"
#include "export.h"

using namespace aclsim;

namespace {

// Waits for all streams of the current context under its stream-list lock, as the real runtime does: creating
// and destroying streams of the context elsewhere waits meanwhile.
aclError synchronize_context(const char *function, int32_t timeout_ms) {
    Context *context = nullptr;
    if (aclError code = working_context(&context)) {
        return code;
    }
    Device &device = *context->device;
    std::lock_guard<std::mutex> list(context->stream_list);
    Lock lock(device.mutex);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    std::vector<std::pair<Stream *, uint64_t>> targets;
    for (Stream *stream : context->streams) {
        targets.emplace_back(stream, stream->submitted);
    }
    aclError first = 0;
    for (const auto &[stream, target] : targets) {
        int32_t left = -1;
        if (timeout_ms >= 0) {
            const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(
                deadline - std::chrono::steady_clock::now());
            left = std::max<int32_t>(0, static_cast<int32_t>(rest.count()));
        }
        const aclError code = device.synchronize(lock, *stream, left, target);
        if (code != 0) {
            lock.unlock();
            return fail(code, "%s: %s", function, explain_blocked(code));
        }
        const aclError task_error = device.take_error(*stream);
        first = first != 0 ? first : task_error;
    }
    lock.unlock();
    return first == 0 ? 0 : fail(first, "%s: a task of the context failed with %d", function, first);
}

aclError check_timeout(const char *function, int32_t timeout_ms) {
    return timeout_ms > 0 || timeout_ms == -1
               ? 0
               : fail(ACL_ERROR_RT_PARAM_INVALID,
                      "%s: timeout %d ms; use -1 to wait for ever, or a positive number", function,
                      timeout_ms);
}

}  // namespace

extern "C" {

ACL_EXPORT aclError aclrtSetDevice(int32_t deviceId) {
    ACL_ENTER(aclrtSetDevice);
    return set_device(deviceId);
}

ACL_EXPORT aclError aclrtResetDevice(int32_t deviceId) {
    ACL_ENTER(aclrtResetDevice);
    return reset_device(deviceId);
}

ACL_EXPORT aclError aclrtResetDeviceForce(int32_t deviceId) {
    ACL_ENTER(aclrtResetDeviceForce);
    return reset_device_force(deviceId);
}

ACL_EXPORT aclError aclrtGetDevice(int32_t *deviceId) {
    ACL_ENTER(aclrtGetDevice);
    if (deviceId == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetDevice: deviceId is NULL");
    }
    const aclError last = thread_state().last_error;
    Context *context = nullptr;
    if (aclError code = current_context(&context)) {
        thread_state().last_error = last;  // the one 107002 that is not recorded
        return code;
    }
    *deviceId = context->device->id;
    return 0;
}

ACL_EXPORT aclError aclrtGetDeviceCount(uint32_t *count) {
    ACL_ENTER(aclrtGetDeviceCount);
    if (count == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetDeviceCount: count is NULL");
    }
    *count = static_cast<uint32_t>(device_count());
    return 0;
}

ACL_EXPORT aclError aclrtGetRunMode(aclrtRunMode *runMode) {
    ACL_ENTER(aclrtGetRunMode);
    if (runMode == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetRunMode: runMode is NULL");
    }
    *runMode = ACL_HOST;
    return 0;
}

ACL_EXPORT aclError aclrtSynchronizeDevice() {
    ACL_ENTER(aclrtSynchronizeDevice);
    return synchronize_context("aclrtSynchronizeDevice", -1);
}

ACL_EXPORT aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout) {
    ACL_ENTER(aclrtSynchronizeDeviceWithTimeout);
    if (aclError code = check_timeout("aclrtSynchronizeDeviceWithTimeout", timeout)) {
        return code;
    }
    return synchronize_context("aclrtSynchronizeDeviceWithTimeout", timeout);
}

ACL_EXPORT aclError aclrtQueryDeviceStatus(int32_t deviceId, aclrtDeviceStatus *deviceStatus) {
    ACL_ENTER(aclrtQueryDeviceStatus);
    if (deviceStatus == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtQueryDeviceStatus: deviceStatus is NULL");
    }
    Device *device = device_at(deviceId);
    if (device == nullptr) {
        return invalid_device(deviceId);
    }
    *deviceStatus =
        device->fault_seen.load() != 0 ? ACL_RT_DEVICE_STATUS_ABNORMAL : ACL_RT_DEVICE_STATUS_NORMAL;
    return 0;
}

ACL_EXPORT aclError aclrtDeviceTaskAbort(int32_t deviceId, uint32_t timeout) {
    ACL_ENTER(aclrtDeviceTaskAbort);
    constexpr uint32_t longest_ms = 36 * 60 * 1000;
    Device *device = device_at(deviceId);
    if (device == nullptr) {
        return invalid_device(deviceId);
    }
    if (timeout > longest_ms) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtDeviceTaskAbort: timeout %u ms is more than 36 minutes",
                    timeout);
    }
    Lock lock(device->mutex);
    if (device->fault() != 0) {
        const aclError fault = device->fault();
        lock.unlock();
        return fail(fault, "aclrtDeviceTaskAbort: device %d is lost", deviceId);
    }
    bool ended = true;
    device->task_abort = ACL_ERROR_RT_DEVICE_TASK_ABORT;
    for (Context *context : std::vector<Context *>(device->contexts)) {
        for (const std::vector<Stream *> &streams : {context->streams, context->lanes}) {
            for (Stream *stream : streams) {
                ended = device->abort(lock, *stream) && ended;
            }
        }
    }
    device->task_abort = 0;
    lock.unlock();
    return ended ? 0
                 : fail(ACL_ERROR_RT_WAIT_TIMEOUT,
                        "aclrtDeviceTaskAbort: a running task of device %d does not end", deviceId);
}

ACL_EXPORT aclError aclrtDeviceCanAccessPeer(int32_t *canAccessPeer, int32_t deviceId, int32_t peerDeviceId) {
    ACL_ENTER(aclrtDeviceCanAccessPeer);
    if (canAccessPeer == nullptr || deviceId == peerDeviceId) {
        return fail(ACL_ERROR_INVALID_PARAM,
                    "aclrtDeviceCanAccessPeer(%d, %d): needs an output pointer and two "
                    "different devices",
                    deviceId, peerDeviceId);
    }
    if (device_at(deviceId) == nullptr || device_at(peerDeviceId) == nullptr) {
        return invalid_device(device_at(deviceId) == nullptr ? deviceId : peerDeviceId);
    }
    *canAccessPeer = 1;
    return 0;
}

ACL_EXPORT aclError aclrtDeviceEnablePeerAccess(int32_t peerDeviceId, uint32_t flags) {
    ACL_ENTER(aclrtDeviceEnablePeerAccess);
    if (flags != 0) {
        return fail(ACL_ERROR_FEATURE_UNSUPPORTED,
                    "aclrtDeviceEnablePeerAccess: flags %u; only 0 is possible", flags);
    }
    return change_peer_access(peerDeviceId, true);
}

ACL_EXPORT aclError aclrtDeviceDisablePeerAccess(int32_t peerDeviceId) {
    ACL_ENTER(aclrtDeviceDisablePeerAccess);
    return change_peer_access(peerDeviceId, false);
}

ACL_EXPORT aclError aclrtSetOpWaitTimeout(uint32_t timeout) {
    ACL_ENTER(aclrtSetOpWaitTimeout);
    settings().op_wait_timeout_s = timeout;
    return 0;
}

// Accepted for programs that set it; simulated kernels take the time their profile says.
ACL_EXPORT aclError aclrtSetOpExecuteTimeOut(uint32_t timeout) {
    ACL_ENTER(aclrtSetOpExecuteTimeOut);
    (void)timeout;
    return 0;
}

}  // extern "C"
