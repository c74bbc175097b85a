// SPDX-License-Identifier: Apache-2.0
// ACL keeps the current context per thread and anybody may change it. Every call of ours runs under a guard that sets
// our context and puts back what it found, so foreign code on the same thread (torch_npu, pyACL) is not disturbed.
#pragma once

#include "loader.h"

namespace aioascend {

class ContextGuard {
public:
    ContextGuard(const AclApi &api, aclrtContext context) : api_(api), outer_(t_context) {
        if (outer_ == context) {
            return;  // a guard around this one has set it
        }
        if (api_.aclrtGetCurrentContext(&previous_) != 0) {
            previous_ = nullptr;
        }
        if (previous_ == context) {
            previous_ = nullptr;
        } else {
            status_ = api_.aclrtSetCurrentContext(context);
        }
        t_context = status_ == 0 ? context : nullptr;
    }
    ~ContextGuard() {
        t_context = outer_;
        if (previous_ != nullptr) {
            api_.aclrtSetCurrentContext(previous_);
        }
    }
    ContextGuard(const ContextGuard &) = delete;
    ContextGuard &operator=(const ContextGuard &) = delete;

    aclError status() const { return status_; }

private:
    static inline thread_local aclrtContext t_context = nullptr;

    const AclApi &api_;
    const aclrtContext outer_;
    aclrtContext previous_ = nullptr;
    aclError status_ = 0;
};

}  // namespace aioascend
