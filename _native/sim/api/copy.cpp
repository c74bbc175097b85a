// SPDX-License-Identifier: Apache-2.0
// One-dimensional copies and memsets.
#include "core/copy.h"

#include <cstring>
#include <memory>

#include "core/context.h"
#include "core/device.h"
#include "core/launch.h"
#include "core/settings.h"
#include "export.h"

using namespace aclsim;

namespace {

// 0 with *nothing set: there is nothing to copy.
aclError check_copy(const char *function, const void *dst, size_t dst_max, const void *src, size_t count,
                    bool *nothing) {
    *nothing = count == 0;
    if (*nothing) {
        return 0;
    }
    if (dst == nullptr || src == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "%s: %s is NULL", function, dst == nullptr ? "dst" : "src");
    }
    if (count > dst_max) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: %zu bytes do not fit into the %zu of dst", function,
                    count, dst_max);
    }
    *nothing = dst == src;
    return 0;
}

// The host data leaves the caller's buffer before the call returns.
aclError copy_staged(Stream &stream, void *dst, const void *src, size_t count, const CopyPlan &plan) {
    auto staged = std::make_shared<std::unique_ptr<char[]>>(new char[count]);
    std::memcpy(staged->get(), src, count);
    Task task;
    task.kind = plan.kind;
    task.unit = Unit::CopyIn;
    task.bytes = count;
    task.work = [staged, dst, count]() -> aclError {
        if (!is_device_address(dst, count, nullptr)) {
            return ACL_ERROR_RT_DEVICE_MEM_ERROR;
        }
        std::memcpy(dst, staged->get(), count);
        return 0;
    };
    return submit(stream, std::move(task));
}

aclError plan_memset(const char *function, void *p, size_t max, size_t count, int32_t value, Entry *entry) {
    if (p == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "%s: devPtr is NULL", function);
    }
    if (count > max) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: %zu bytes do not fit into %zu", function, count, max);
    }
    const Place place = classify(p, count);
    if (place.where == Where::Pageable || !place.whole) {
        return fail(ACL_ERROR_RT_PARAM_INVALID,
                    "%s: %zu bytes from %p are not inside one live allocation of aclrtMalloc "
                    "or aclrtMallocHost",
                    function, count, p);
    }
    entry->op = Op::Set;
    entry->kind = "memset";
    entry->unit = Unit::CopyDevice;
    entry->bytes = count;
    entry->dst_where = place.where;
    entry->memory_epoch = memory_epoch();
    entry->set.dst = p;
    entry->set.value = value;
    return 0;
}

}  // namespace

extern "C" {

ACL_EXPORT aclError aclrtMemcpy(void *dst, size_t destMax, const void *src, size_t count,
                                aclrtMemcpyKind kind) {
    ACL_ENTER(aclrtMemcpy);
    Context *context = nullptr;
    if (aclError code = working_context(&context)) {
        return code;
    }
    if (kind == ACL_MEMCPY_INNER_DEVICE_TO_DEVICE || kind == ACL_MEMCPY_INTER_DEVICE_TO_DEVICE) {
        return fail(ACL_ERROR_INVALID_PARAM,
                    "aclrtMemcpy: kind %d is not for this call; use DEVICE_TO_DEVICE (3)",
                    static_cast<int>(kind));
    }
    bool nothing = false;
    if (aclError code = check_copy("aclrtMemcpy", dst, destMax, src, count, &nothing)) {
        return code;
    }
    if (nothing) {
        return 0;
    }
    CopyPlan plan;
    if (aclError code = plan_copy("aclrtMemcpy", dst, count, src, count, kind, &plan)) {
        return code;
    }
    return run_entry(*context, copy_entry(dst, src, count, plan));
}

ACL_EXPORT aclError aclrtMemcpyAsync(void *dst, size_t destMax, const void *src, size_t count,
                                     aclrtMemcpyKind kind, aclrtStream stream) {
    ACL_ENTER(aclrtMemcpyAsync);
    Stream *found = nullptr;
    if (aclError code = resolve_stream(stream, &found)) {
        return code;
    }
    bool nothing = false;
    if (aclError code = check_copy("aclrtMemcpyAsync", dst, destMax, src, count, &nothing)) {
        return code;
    }
    if (nothing) {
        return 0;
    }
    CopyPlan plan;
    if (aclError code = plan_copy("aclrtMemcpyAsync", dst, count, src, count, kind, &plan)) {
        return code;
    }
    if (plan.unit == Unit::None) {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                    "aclrtMemcpyAsync does not copy from host to host; use memcpy");
    }
    if (kind == ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE && plan.unit == Unit::CopyIn) {
        return copy_staged(*found, dst, src, count, plan);
    }
    const Entry entry = copy_entry(dst, src, count, plan);
    return plan.pageable() ? run_pageable(*found, entry) : submit_entry(*found, entry);
}

ACL_EXPORT aclError aclrtMemset(void *devPtr, size_t maxCount, int32_t value, size_t count) {
    ACL_ENTER(aclrtMemset);
    Context *context = nullptr;
    if (aclError code = working_context(&context)) {
        return code;
    }
    if (count == 0) {
        return 0;
    }
    Entry entry;
    if (aclError code = plan_memset("aclrtMemset", devPtr, maxCount, count, value, &entry)) {
        return code;
    }
    return run_entry(*context, entry);
}

ACL_EXPORT aclError aclrtMemsetAsync(void *devPtr, size_t maxCount, int32_t value, size_t count,
                                     aclrtStream stream) {
    ACL_ENTER(aclrtMemsetAsync);
    Stream *found = nullptr;
    if (aclError code = resolve_stream(stream, &found)) {
        return code;
    }
    if (count == 0) {
        return 0;
    }
    Entry entry;
    if (aclError code = plan_memset("aclrtMemsetAsync", devPtr, maxCount, count, value, &entry)) {
        return code;
    }
    return submit_entry(*found, entry);
}

}  // extern "C"
