// SPDX-License-Identifier: Apache-2.0
#include "core/exception.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "core/device.h"
#include "core/thread_state.h"

// The opaque type behind aclrtExceptionInfo.
struct rtExceptionInfo {
    aclsim::ExceptionFacts facts;
};

namespace aclsim {

namespace {

struct Callbacks {
    std::mutex mutex;
    aclrtExceptionInfoCallback single = nullptr;
    std::vector<aclrtExceptionInfoCallback> registered;
};

Callbacks &callbacks() {
    static Callbacks *instance = new Callbacks;
    return *instance;
}

}  // namespace

const ExceptionFacts *exception_facts(const aclrtExceptionInfo *info) {
    return info == nullptr ? nullptr : &info->facts;
}

void set_exception_callback(aclrtExceptionInfoCallback callback) {
    std::lock_guard<std::mutex> lock(callbacks().mutex);
    callbacks().single = callback;
}

void add_exception_callback(aclrtExceptionInfoCallback callback) {
    std::lock_guard<std::mutex> lock(callbacks().mutex);
    std::vector<aclrtExceptionInfoCallback> &all = callbacks().registered;
    if (std::find(all.begin(), all.end(), callback) == all.end()) {
        all.push_back(callback);
    }
}

bool remove_exception_callback(aclrtExceptionInfoCallback callback) {
    std::lock_guard<std::mutex> lock(callbacks().mutex);
    std::vector<aclrtExceptionInfoCallback> &all = callbacks().registered;
    const auto found = std::find(all.begin(), all.end(), callback);
    if (found == all.end()) {
        return false;
    }
    all.erase(found);
    return true;
}

void call_exception_callbacks(const ExceptionFacts &facts) {
    std::vector<aclrtExceptionInfoCallback> all;
    {
        std::lock_guard<std::mutex> lock(callbacks().mutex);
        all = callbacks().registered;
        if (callbacks().single != nullptr) {
            all.push_back(callbacks().single);
        }
    }
    rtExceptionInfo info{facts};
    CallbackScope scope;
    for (aclrtExceptionInfoCallback callback : all) {
        callback(&info);
    }
}

}  // namespace aclsim
