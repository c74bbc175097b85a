// SPDX-License-Identifier: Apache-2.0
#include "core/copy.h"

#include "core/peer.h"

namespace aclsim {

namespace {

aclError check_side(const char *function, const char *side, const void *p, size_t span, const Place &place,
                    bool must_be_device) {
    if (must_be_device && place.where != Where::Device) {
        return fail(ACL_ERROR_RT_PARAM_INVALID,
                    "%s: %s %p is not device memory (freed, or never allocated), but the "
                    "copy kind says so",
                    function, side, p);
    }
    if (!place.whole) {
        return fail(ACL_ERROR_RT_PARAM_INVALID,
                    "%s: %zu bytes from %s %p go beyond the end of its allocation", function, span, side, p);
    }
    return 0;
}

}  // namespace

aclError plan_copy(const char *function, void *dst, size_t dst_span, const void *src, size_t src_span,
                   aclrtMemcpyKind kind, CopyPlan *plan) {
    if (static_cast<uint32_t>(kind) > ACL_MEMCPY_INTER_DEVICE_TO_DEVICE) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: there is no copy kind %d", function,
                    static_cast<int>(kind));
    }
    const Place to = classify(dst, dst_span);
    const Place from = classify(src, src_span);
    const bool to_device = to.where == Where::Device;
    const bool from_device = from.where == Where::Device;
    // Where both sides are known to be something else than the kind says, the addresses win; where the kind
    // claims device memory and none is involved, there is nothing to correct it to.
    const bool claims_to = kind == ACL_MEMCPY_HOST_TO_DEVICE || kind == ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE ||
                           kind == ACL_MEMCPY_DEVICE_TO_DEVICE || kind >= ACL_MEMCPY_INNER_DEVICE_TO_DEVICE;
    const bool claims_from = kind == ACL_MEMCPY_DEVICE_TO_HOST || kind == ACL_MEMCPY_DEVICE_TO_DEVICE ||
                             kind >= ACL_MEMCPY_INNER_DEVICE_TO_DEVICE;
    const bool swapped = (claims_to != claims_from) && to_device != from_device;
    if (aclError code = check_side(function, "dst", dst, dst_span, to, claims_to && !swapped)) {
        return code;
    }
    if (aclError code = check_side(function, "src", src, src_span, from, claims_from && !swapped)) {
        return code;
    }
    plan->dst = to.where;
    plan->src = from.where;
    if (to_device && from_device) {
        if (!can_reach(from.device, to.device)) {
            return fail(ACL_ERROR_RT_DRV_INTERNAL_ERROR,
                        "%s: device %d has no access to device %d; call "
                        "aclrtDeviceEnablePeerAccess(%d, 0) with device %d current",
                        function, from.device, to.device, to.device, from.device);
        }
        plan->unit = Unit::CopyDevice;
        plan->kind = "memcpy_d2d";
    } else if (to_device) {
        plan->unit = Unit::CopyIn;
        plan->kind = "memcpy_h2d";
    } else if (from_device) {
        plan->unit = Unit::CopyOut;
        plan->kind = "memcpy_d2h";
    }
    return 0;
}

Entry copy_entry(void *dst, const void *src, size_t count, const CopyPlan &plan) {
    Entry entry;
    entry.op = Op::Copy;
    entry.unit = plan.unit;
    entry.kind = plan.kind;
    entry.bytes = count;
    entry.dst_where = plan.dst;
    entry.src_where = plan.src;
    entry.memory_epoch = memory_epoch();
    entry.copy.dst = dst;
    entry.copy.src = src;
    return entry;
}

}  // namespace aclsim
