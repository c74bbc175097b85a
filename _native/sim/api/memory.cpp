// SPDX-License-Identifier: Apache-2.0
// Allocating, freeing and describing memory.
#include "core/memory.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "core/context.h"
#include "core/device.h"
#include "export.h"

using namespace aclsim;

extern "C" aclError aclrtSynchronizeDevice();

namespace {

constexpr uint32_t policy_bits =
    ACL_MEM_TYPE_LOW_BAND_WIDTH | ACL_MEM_TYPE_HIGH_BAND_WIDTH | ACL_MEM_ACCESS_USER_SPACE_READONLY;
constexpr size_t page = 4096;
constexpr size_t huge_page = 2u << 20;

aclError check_policy(const char *function, aclrtMemMallocPolicy policy) {
    const uint32_t base = static_cast<uint32_t>(policy) & ~policy_bits;
    return base <= ACL_MEM_MALLOC_HUGE1G_ONLY_P2P
               ? 0
               : fail(ACL_ERROR_RT_PARAM_INVALID, "%s: there is no allocation policy 0x%x", function,
                      static_cast<uint32_t>(policy));
}

aclError check_request(const char *function, const void *out, uint64_t size) {
    if (out == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "%s: the output pointer is NULL", function);
    }
    return size != 0 ? 0
                     : fail(ACL_ERROR_INVALID_PARAM, "%s: 0 bytes wanted; an allocation has at least one",
                            function);
}

// Reads the attributes of an allocation; only the device id means something here.
aclError read_config(const char *function, const aclrtMallocConfig *config, int32_t *device) {
    if (config == nullptr) {
        return 0;
    }
    if (config->numAttrs != 0 && config->attrs == nullptr) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: cfg names %zu attributes but attrs is NULL", function,
                    config->numAttrs);
    }
    for (size_t i = 0; i < config->numAttrs; ++i) {
        const aclrtMallocAttribute &attribute = config->attrs[i];
        switch (attribute.attr) {
            case ACL_RT_MEM_ATTR_RSV:
            case ACL_RT_MEM_ATTR_MODULE_ID:
            case ACL_RT_MEM_ATTR_VA_FLAG: break;
            case ACL_RT_MEM_ATTR_DEVICE_ID:
                *device = static_cast<int32_t>(attribute.value.deviceId);
                if (device_at(*device) == nullptr) {
                    return invalid_device(*device);
                }
                break;
            default:
                return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: there is no allocation attribute %d", function,
                            static_cast<int>(attribute.attr));
        }
    }
    return 0;
}

aclError malloc_device(const char *function, void **out, size_t size, aclrtMemMallocPolicy policy,
                       const aclrtMallocConfig *config) {
    if (aclError code = check_request(function, out, size)) {
        return code;
    }
    Context *context = nullptr;
    if (aclError code = working_context(&context)) {
        return code;
    }
    if (aclError code = check_policy(function, policy)) {
        return code;
    }
    int32_t device = context->device->id;
    if (aclError code = read_config(function, config, &device)) {
        return code;
    }
    return allocate_device(device, size, out);
}

aclError malloc_host(const char *function, void **out, uint64_t size, const aclrtMallocConfig *config) {
    if (aclError code = check_request(function, out, size)) {
        return code;
    }
    Context *context = nullptr;
    if (aclError code = working_context(&context)) {
        return code;
    }
    int32_t device = context->device->id;
    if (aclError code = read_config(function, config, &device)) {
        return code;
    }
    return allocate_host(device, size, out);
}

}  // namespace

extern "C" {

ACL_EXPORT aclError aclrtMalloc(void **devPtr, size_t size, aclrtMemMallocPolicy policy) {
    ACL_ENTER(aclrtMalloc);
    return malloc_device("aclrtMalloc", devPtr, size, policy, nullptr);
}

ACL_EXPORT aclError aclrtMallocWithCfg(void **devPtr, size_t size, aclrtMemMallocPolicy policy,
                                       aclrtMallocConfig *cfg) {
    ACL_ENTER(aclrtMallocWithCfg);
    return malloc_device("aclrtMallocWithCfg", devPtr, size, policy, cfg);
}

ACL_EXPORT aclError aclrtFree(void *devPtr) {
    ACL_ENTER(aclrtFree);
    if (devPtr == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtFree: devPtr is NULL");
    }
    return release_device(devPtr);
}

ACL_EXPORT aclError aclrtFreeWithDevSync(void *devPtr) {
    ACL_ENTER(aclrtFreeWithDevSync);
    if (devPtr == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtFreeWithDevSync: devPtr is NULL");
    }
    if (aclError code = aclrtSynchronizeDevice()) {
        return code;
    }
    return release_device(devPtr);
}

ACL_EXPORT aclError aclrtMallocHost(void **hostPtr, size_t size) {
    ACL_ENTER(aclrtMallocHost);
    return malloc_host("aclrtMallocHost", hostPtr, size, nullptr);
}

ACL_EXPORT aclError aclrtMallocHostWithCfg(void **ptr, uint64_t size, aclrtMallocConfig *cfg) {
    ACL_ENTER(aclrtMallocHostWithCfg);
    return malloc_host("aclrtMallocHostWithCfg", ptr, size, cfg);
}

ACL_EXPORT aclError aclrtFreeHost(void *hostPtr) {
    ACL_ENTER(aclrtFreeHost);
    if (hostPtr == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtFreeHost: hostPtr is NULL");
    }
    return release_host(hostPtr);
}

ACL_EXPORT aclError aclrtFreeHostWithDevSync(void *hostPtr) {
    ACL_ENTER(aclrtFreeHostWithDevSync);
    if (hostPtr == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtFreeHostWithDevSync: hostPtr is NULL");
    }
    if (aclError code = aclrtSynchronizeDevice()) {
        return code;
    }
    return release_host(hostPtr);
}

ACL_EXPORT aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t *free, size_t *total) {
    ACL_ENTER(aclrtGetMemInfo);
    if (free == nullptr || total == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetMemInfo: an output pointer is NULL");
    }
    Context *context = nullptr;
    if (aclError code = working_context(&context)) {
        return code;
    }
    *free = *total = 0;
    if (static_cast<uint32_t>(attr) <= ACL_MEM_P2P_HUGE1G) {
        const MemoryUse use = memory_use(context->device->id);
        *total = use.total;
        *free = use.total > use.used ? use.total - use.used : 0;
    }
    return 0;
}

ACL_EXPORT aclError aclrtGetMemUsageInfo(int32_t deviceId, aclrtMemUsageInfo *memUsageInfo, size_t inputNum,
                                         size_t *outputNum) {
    ACL_ENTER(aclrtGetMemUsageInfo);
    if (memUsageInfo == nullptr || outputNum == nullptr || inputNum == 0) {
        return fail(ACL_ERROR_INVALID_PARAM,
                    "aclrtGetMemUsageInfo: needs room for at least one entry and outputNum");
    }
    if (device_at(deviceId) == nullptr) {
        return invalid_device(deviceId);
    }
    const MemoryUse use = memory_use(deviceId);
    memUsageInfo[0] = aclrtMemUsageInfo{};
    std::snprintf(memUsageInfo[0].name, sizeof memUsageInfo[0].name, "all");
    memUsageInfo[0].curMemSize = use.used;
    memUsageInfo[0].memPeakSize = use.peak;
    *outputNum = 1;
    return 0;
}

ACL_EXPORT aclError aclrtPointerGetAttributes(const void *ptr, aclrtPtrAttributes *attributes) {
    ACL_ENTER(aclrtPointerGetAttributes);
    if (ptr == nullptr || attributes == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtPointerGetAttributes: a pointer is NULL");
    }
    const Place place = classify(ptr, 1);
    *attributes = aclrtPtrAttributes{};
    switch (place.where) {
        case Where::Device:
            attributes->location.id = static_cast<uint32_t>(place.device);
            attributes->location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
            attributes->pageSize = huge_page;
            break;
        case Where::Pinned:
            attributes->location.type = ACL_MEM_LOCATION_TYPE_HOST;
            attributes->pageSize = page;
            break;
        case Where::Pageable: attributes->location.type = ACL_MEM_LOCATION_TYPE_UNREGISTERED; break;
    }
    return 0;
}

ACL_EXPORT aclError aclrtHostRegister(void *ptr, uint64_t size, aclrtHostRegisterType type, void **devPtr) {
    ACL_ENTER(aclrtHostRegister);
    if (ptr == nullptr || devPtr == nullptr || size == 0) {
        return fail(ACL_ERROR_INVALID_PARAM,
                    "aclrtHostRegister: needs memory, its size and an output pointer");
    }
    if (type != ACL_HOST_REGISTER_MAPPED) {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "aclrtHostRegister: type %d; only MAPPED (0) is usable",
                    static_cast<int>(type));
    }
    if (reinterpret_cast<uintptr_t>(ptr) % page != 0) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtHostRegister: %p is not aligned to 4096 bytes", ptr);
    }
    if (aclError code = register_host(ptr, size, true)) {
        return code;
    }
    *devPtr = ptr;
    return 0;
}

ACL_EXPORT aclError aclrtHostRegisterV2(void *ptr, uint64_t size, uint32_t flag) {
    ACL_ENTER(aclrtHostRegisterV2);
    constexpr uint32_t usable = ACL_HOST_REG_MAPPED | ACL_HOST_REG_PINNED;
    if (ptr == nullptr || size == 0) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtHostRegisterV2: needs memory and its size");
    }
    if ((flag & (ACL_HOST_REG_IOMEMORY | ACL_HOST_REG_READONLY)) != 0) {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                    "aclrtHostRegisterV2: flag 0x%x; IOMEMORY and READONLY are not "
                    "supported",
                    flag);
    }
    if (flag == 0 || (flag & ~usable) != 0) {
        return fail(ACL_ERROR_RT_PARAM_INVALID,
                    "aclrtHostRegisterV2: flag 0x%x; combine MAPPED 0x2 and PINNED "
                    "0x10000000",
                    flag);
    }
    return register_host(ptr, size, (flag & ACL_HOST_REG_MAPPED) != 0);
}

ACL_EXPORT aclError aclrtHostUnregister(void *ptr) {
    ACL_ENTER(aclrtHostUnregister);
    if (ptr == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtHostUnregister: ptr is NULL");
    }
    return unregister_host(ptr);
}

ACL_EXPORT aclError aclrtHostGetDevicePointer(void *pHost, void **pDevice, uint32_t flag) {
    ACL_ENTER(aclrtHostGetDevicePointer);
    if (pHost == nullptr || pDevice == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtHostGetDevicePointer: a pointer is NULL");
    }
    if (flag != 0) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtHostGetDevicePointer: flag %u; only 0 exists", flag);
    }
    return host_device_pointer(pHost, pDevice);
}

}  // extern "C"
