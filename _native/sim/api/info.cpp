// SPDX-License-Identifier: Apache-2.0
// What a device can and does.
#include "core/context.h"
#include "core/device.h"
#include "core/memory.h"
#include "export.h"

using namespace aclsim;

namespace {
constexpr int64_t l2_bytes = 192 << 20;
constexpr int64_t ai_cpus = 7;
}  // namespace

extern "C" {

ACL_EXPORT aclError aclrtGetDeviceInfo(uint32_t deviceId, aclrtDevAttr attr, int64_t *value) {
    ACL_ENTER(aclrtGetDeviceInfo);
    if (value == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetDeviceInfo: value is NULL");
    }
    Device *device = device_at(static_cast<int32_t>(deviceId));
    if (device == nullptr) {
        return invalid_device(static_cast<int32_t>(deviceId));
    }
    Lock lock(device->mutex);
    switch (attr) {
        case ACL_DEV_ATTR_AICPU_CORE_NUM: *value = ai_cpus; return 0;
        case ACL_DEV_ATTR_AICORE_CORE_NUM:
        case ACL_DEV_ATTR_CUBE_CORE_NUM:
        case ACL_DEV_ATTR_VECTOR_CORE_NUM: *value = device->profile().ai_cores; return 0;
        case ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE:
            *value = static_cast<int64_t>(memory_use(device->id).total);
            return 0;
        case ACL_DEV_ATTR_L2_CACHE_SIZE: *value = l2_bytes; return 0;
        case ACL_DEV_ATTR_PHY_CHIP_ID: *value = device->id; return 0;
        case ACL_DEV_ATTR_IS_VIRTUAL: *value = 0; return 0;
        default: break;
    }
    lock.unlock();
    return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                "aclrtGetDeviceInfo: the simulator does not model attribute %d", static_cast<int>(attr));
}

ACL_EXPORT aclError aclGetDeviceCapability(uint32_t deviceId, aclDeviceInfo deviceInfo, int64_t *value) {
    ACL_ENTER(aclGetDeviceCapability);
    Device *device = device_at(static_cast<int32_t>(deviceId));
    if (value == nullptr || device == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM,
                    "aclGetDeviceCapability: device %u, value %p; needs an existing device and "
                    "an output pointer",
                    deviceId, static_cast<void *>(value));
    }
    Lock lock(device->mutex);
    switch (deviceInfo) {
        case ACL_DEVICE_INFO_AI_CORE_NUM:
        case ACL_DEVICE_INFO_VECTOR_CORE_NUM: *value = device->profile().ai_cores; return 0;
        case ACL_DEVICE_INFO_L2_SIZE: *value = l2_bytes; return 0;
        default: break;
    }
    lock.unlock();
    return fail(ACL_ERROR_INVALID_PARAM, "aclGetDeviceCapability: there is no information %d",
                static_cast<int>(deviceInfo));
}

ACL_EXPORT aclError aclrtGetDeviceUtilizationRate(int32_t deviceId, aclrtUtilizationInfo *utilizationInfo) {
    ACL_ENTER(aclrtGetDeviceUtilizationRate);
    if (utilizationInfo == nullptr || utilizationInfo->utilizationExtend != nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM,
                    "aclrtGetDeviceUtilizationRate: needs utilizationInfo, with "
                    "utilizationExtend set to NULL");
    }
    Device *device = device_at(deviceId);
    if (device == nullptr) {
        return invalid_device(deviceId);
    }
    utilizationInfo->cubeUtilization = device->utilization();
    utilizationInfo->vectorUtilization = utilizationInfo->cubeUtilization;
    utilizationInfo->aicpuUtilization = 0;
    utilizationInfo->memoryUtilization = -1;
    return 0;
}

ACL_EXPORT aclError aclrtDeviceGetStreamPriorityRange(int32_t *leastPriority, int32_t *greatestPriority) {
    ACL_ENTER(aclrtDeviceGetStreamPriorityRange);
    Context *context = nullptr;
    if (aclError code = current_context(&context)) {
        return code;
    }
    if (leastPriority != nullptr) {
        *leastPriority = 7;
    }
    if (greatestPriority != nullptr) {
        *greatestPriority = 0;
    }
    return 0;
}

}  // extern "C"
