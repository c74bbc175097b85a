// SPDX-License-Identifier: Apache-2.0
// Two-dimensional and batched copies.
#include <array>
#include <cstring>
#include <vector>

#include "core/context.h"
#include "core/copy.h"
#include "core/device.h"
#include "core/launch.h"
#include "export.h"

using namespace aclsim;

namespace {

// One strip of memory to copy, with what its ends were when the call was checked.
struct Strip {
    void *dst;
    const void *src;
    size_t bytes;
    CopyPlan plan;
};

struct Rows {
    size_t dst_pitch, src_pitch, width, height;
    size_t dst_span() const { return (height - 1) * dst_pitch + width; }
    size_t src_span() const { return (height - 1) * src_pitch + width; }
};

bool still_there(Where where, const void *p, size_t size) {
    return where != Where::Device || is_device_address(p, size, nullptr);
}

Task copy_task(const CopyPlan &plan, uint64_t bytes, std::function<aclError()> work) {
    Task task;
    task.kind = plan.kind;
    task.unit = plan.unit;
    task.bytes = bytes;
    task.work = std::move(work);
    return task;
}

Task rows_task(void *dst, const void *src, const Rows &rows, const CopyPlan &plan) {
    return copy_task(plan, rows.width * rows.height, [dst, src, rows, plan]() -> aclError {
        if (!still_there(plan.dst, dst, rows.dst_span()) || !still_there(plan.src, src, rows.src_span())) {
            return ACL_ERROR_RT_DEVICE_MEM_ERROR;
        }
        for (size_t row = 0; row < rows.height; ++row) {
            std::memcpy(static_cast<char *>(dst) + row * rows.dst_pitch,
                        static_cast<const char *>(src) + row * rows.src_pitch, rows.width);
        }
        return 0;
    });
}

aclError check_rows(const char *function, const void *dst, const void *src, const Rows &rows,
                    aclrtMemcpyKind kind) {
    constexpr size_t widest = 5000000;
    constexpr size_t tallest = 5242880;
    if (kind != ACL_MEMCPY_HOST_TO_DEVICE && kind != ACL_MEMCPY_DEVICE_TO_HOST &&
        kind != ACL_MEMCPY_DEVICE_TO_DEVICE) {
        return fail(ACL_ERROR_INVALID_PARAM,
                    "%s: kind %d; only HOST_TO_DEVICE 1, DEVICE_TO_HOST 2 and DEVICE_TO_DEVICE "
                    "3 are possible",
                    function, static_cast<int>(kind));
    }
    if (dst == nullptr || src == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "%s: %s is NULL", function, dst == nullptr ? "dst" : "src");
    }
    if (rows.width > rows.dst_pitch || rows.width > rows.src_pitch) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: width %zu is more than a pitch (dst %zu, src %zu)",
                    function, rows.width, rows.dst_pitch, rows.src_pitch);
    }
    if (rows.width > widest || rows.height > tallest) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: %zu x %zu is more than %zu x %zu", function, rows.width,
                    rows.height, widest, tallest);
    }
    return 0;
}

// A pageable side makes the call synchronous, like that of a plain copy.
aclError launch(Stream &stream, Task &&task, bool pageable) {
    return pageable ? run_pageable(stream, std::move(task)) : submit(stream, std::move(task));
}

struct Batch {
    void **dsts;
    size_t *dst_maxs;
    void **srcs;
    size_t *sizes;
    size_t count;
    aclrtMemcpyBatchAttr *attributes;
    size_t *first_of_attribute;
    size_t attribute_count;
};

bool matches(const aclrtMemLocation &location, Where where) {
    switch (location.type) {
        case ACL_MEM_LOCATION_TYPE_DEVICE: return where == Where::Device;
        case ACL_MEM_LOCATION_TYPE_HOST:
        case ACL_MEM_LOCATION_TYPE_UNREGISTERED: return where != Where::Device;
        default: return false;
    }
}

aclError plan_batch(const char *function, const Batch &batch, std::vector<Strip> *strips,
                    size_t *fail_index) {
    *fail_index = SIZE_MAX;
    if (batch.dsts == nullptr || batch.dst_maxs == nullptr || batch.srcs == nullptr ||
        batch.sizes == nullptr || batch.attributes == nullptr || batch.first_of_attribute == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "%s: an array is NULL", function);
    }
    if (batch.count == 0 || batch.attribute_count == 0 || batch.attribute_count > batch.count ||
        batch.first_of_attribute[0] != 0) {
        return fail(ACL_ERROR_RT_PARAM_INVALID,
                    "%s: %zu copies with %zu attributes; there must be at least one of each, "
                    "and the first attribute begins at copy 0",
                    function, batch.count, batch.attribute_count);
    }
    size_t attribute = 0;
    for (size_t i = 0; i < batch.count; ++i) {
        if (attribute + 1 < batch.attribute_count && batch.first_of_attribute[attribute + 1] == i) {
            ++attribute;
        }
        *fail_index = i;
        Strip strip{batch.dsts[i], batch.srcs[i], batch.sizes[i], CopyPlan{}};
        if (strip.dst == nullptr || strip.src == nullptr || strip.bytes == 0 ||
            strip.bytes > batch.dst_maxs[i]) {
            return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: copy %zu: %zu bytes from %p to %p, which holds %zu",
                        function, i, strip.bytes, strip.src, strip.dst, batch.dst_maxs[i]);
        }
        if (aclError code = plan_copy(function, strip.dst, strip.bytes, strip.src, strip.bytes,
                                      ACL_MEMCPY_DEFAULT, &strip.plan)) {
            return code;
        }
        const aclrtMemcpyBatchAttr &where = batch.attributes[attribute];
        if ((strip.plan.unit != Unit::CopyIn && strip.plan.unit != Unit::CopyOut) ||
            !matches(where.dstLoc, strip.plan.dst) || !matches(where.srcLoc, strip.plan.src)) {
            return fail(ACL_ERROR_RT_PARAM_INVALID,
                        "%s: copy %zu is a %s; batches copy between host and device, in the "
                        "direction their attribute says",
                        function, i, strip.plan.kind);
        }
        strips->push_back(strip);
    }
    *fail_index = SIZE_MAX;
    return 0;
}

// One task for each direction that occurs, because each has an engine of its own.
aclError each_direction(const std::vector<Strip> &strips, const std::function<aclError(Task &&, bool)> &run) {
    for (Unit unit : {Unit::CopyIn, Unit::CopyOut}) {
        std::vector<Strip> part;
        uint64_t bytes = 0;
        bool pageable = false;
        for (const Strip &strip : strips) {
            if (strip.plan.unit == unit) {
                part.push_back(strip);
                bytes += strip.bytes;
                pageable = pageable || strip.plan.pageable();
            }
        }
        if (part.empty()) {
            continue;
        }
        const CopyPlan plan = part.front().plan;
        Task task = copy_task(plan, bytes, [part]() -> aclError {
            for (const Strip &strip : part) {
                if (!still_there(strip.plan.dst, strip.dst, strip.bytes) ||
                    !still_there(strip.plan.src, strip.src, strip.bytes)) {
                    return ACL_ERROR_RT_DEVICE_MEM_ERROR;
                }
                std::memcpy(strip.dst, strip.src, strip.bytes);
            }
            return 0;
        });
        if (aclError code = run(std::move(task), pageable)) {
            return code;
        }
    }
    return 0;
}

aclError batch_now(const char *function, const Batch &batch, size_t *fail_index) {
    Context *context = nullptr;
    if (aclError code = working_context(&context)) {
        return code;
    }
    std::vector<Strip> strips;
    if (aclError code = plan_batch(function, batch, &strips, fail_index)) {
        return code;
    }
    return each_direction(strips,
                          [context](Task &&task, bool) { return run_blocking(*context, std::move(task)); });
}

aclError batch_async(const char *function, const Batch &batch, size_t *fail_index, aclrtStream stream) {
    Stream *found = nullptr;
    if (aclError code = resolve_stream(stream, &found)) {
        return code;
    }
    std::vector<Strip> strips;
    if (aclError code = plan_batch(function, batch, &strips, fail_index)) {
        return code;
    }
    return each_direction(
        strips, [found](Task &&task, bool pageable) { return launch(*found, std::move(task), pageable); });
}

}  // namespace

extern "C" {

ACL_EXPORT aclError aclrtMemcpy2d(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
                                  size_t height, aclrtMemcpyKind kind) {
    ACL_ENTER(aclrtMemcpy2d);
    const Rows rows{dpitch, spitch, width, height};
    Context *context = nullptr;
    if (aclError code = working_context(&context)) {
        return code;
    }
    if (aclError code = check_rows("aclrtMemcpy2d", dst, src, rows, kind)) {
        return code;
    }
    if (width == 0 || height == 0) {
        return 0;
    }
    CopyPlan plan;
    if (aclError code = plan_copy("aclrtMemcpy2d", dst, rows.dst_span(), src, rows.src_span(), kind, &plan)) {
        return code;
    }
    return run_blocking(*context, rows_task(dst, src, rows, plan));
}

ACL_EXPORT aclError aclrtMemcpy2dAsync(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
                                       size_t height, aclrtMemcpyKind kind, aclrtStream stream) {
    ACL_ENTER(aclrtMemcpy2dAsync);
    const Rows rows{dpitch, spitch, width, height};
    Stream *found = nullptr;
    if (aclError code = resolve_stream(stream, &found)) {
        return code;
    }
    if (aclError code = check_rows("aclrtMemcpy2dAsync", dst, src, rows, kind)) {
        return code;
    }
    if (width == 0 || height == 0) {
        return 0;
    }
    CopyPlan plan;
    if (aclError code =
            plan_copy("aclrtMemcpy2dAsync", dst, rows.dst_span(), src, rows.src_span(), kind, &plan)) {
        return code;
    }
    return launch(*found, rows_task(dst, src, rows, plan), plan.pageable());
}

ACL_EXPORT aclError aclrtMemcpyBatch(void **dsts, size_t *destMaxs, void **srcs, size_t *sizes,
                                     size_t numBatches, aclrtMemcpyBatchAttr *attrs, size_t *attrsIndexes,
                                     size_t numAttrs, size_t *failIndex) {
    ACL_ENTER(aclrtMemcpyBatch);
    if (failIndex == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtMemcpyBatch: failIndex is NULL");
    }
    return batch_now("aclrtMemcpyBatch",
                     Batch{dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, numAttrs},
                     failIndex);
}

ACL_EXPORT aclError aclrtMemcpyBatchV2(void **dsts, size_t *destMaxs, void **srcs, size_t *sizes,
                                       size_t numBatches, aclrtMemcpyBatchAttr *attrs, size_t *attrsIndexes,
                                       size_t numAttrs) {
    ACL_ENTER(aclrtMemcpyBatchV2);
    size_t ignored = 0;
    return batch_now("aclrtMemcpyBatchV2",
                     Batch{dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, numAttrs}, &ignored);
}

ACL_EXPORT aclError aclrtMemcpyBatchAsync(void **dsts, size_t *destMaxs, void **srcs, size_t *sizes,
                                          size_t numBatches, aclrtMemcpyBatchAttr *attrs,
                                          size_t *attrsIndexes, size_t numAttrs, size_t *failIndex,
                                          aclrtStream stream) {
    ACL_ENTER(aclrtMemcpyBatchAsync);
    if (failIndex == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtMemcpyBatchAsync: failIndex is NULL");
    }
    return batch_async("aclrtMemcpyBatchAsync",
                       Batch{dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, numAttrs},
                       failIndex, stream);
}

ACL_EXPORT aclError aclrtMemcpyBatchAsyncV2(void **dsts, size_t *destMaxs, void **srcs, size_t *sizes,
                                            size_t numBatches, aclrtMemcpyBatchAttr *attrs,
                                            size_t *attrsIndexes, size_t numAttrs, aclrtStream stream) {
    ACL_ENTER(aclrtMemcpyBatchAsyncV2);
    size_t ignored = 0;
    return batch_async("aclrtMemcpyBatchAsyncV2",
                       Batch{dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, numAttrs},
                       &ignored, stream);
}

}  // extern "C"
