// SPDX-License-Identifier: Apache-2.0
// What a copy is, once the addresses have been looked at.
#pragma once

#include "core/stream.h"

namespace aclsim {

struct CopyPlan {
    Unit unit = Unit::None;
    const char *kind = "memcpy_h2h";
    Where dst = Where::Pageable;
    Where src = Where::Pageable;
    // One side is pageable host memory: an asynchronous copy is none.
    bool pageable() const {
        return unit != Unit::CopyDevice && (dst == Where::Pageable || src == Where::Pageable);
    }
};

// Derives the direction from the addresses and checks the ranges; `kind` only has to be possible. 107000
// recorded for device memory that is not there, 507899 for peers that cannot reach each other.
aclError plan_copy(const char *function, void *dst, size_t dst_span, const void *src, size_t src_span,
                   aclrtMemcpyKind kind, CopyPlan *plan);

Entry copy_entry(void *dst, const void *src, size_t count, const CopyPlan &plan);

}  // namespace aclsim
