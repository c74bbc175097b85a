// SPDX-License-Identifier: Apache-2.0
// Handles whose memory the caller creates and destroys at will. The set of live ones tells a destroyed handle
// without touching it.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_set>

#include "core/errors.h"

namespace aclsim {

template <class T>
class LiveHandles {
public:
    explicit LiveHandles(const char *counted_as = nullptr) : counted_as_(counted_as) {}

    T *add(std::unique_ptr<T> object) {
        std::lock_guard<std::mutex> lock(mutex_);
        live_.insert(object.get());
        if (counted_as_) {
            count_live(counted_as_, 1);
        }
        return object.release();
    }

    bool contains(const T *handle) const {
        std::lock_guard<std::mutex> lock(mutex_);
        return live_.count(handle) != 0;
    }

    // Null when it is not live.
    std::unique_ptr<T> remove(const T *handle) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (live_.erase(handle) == 0) {
            return nullptr;
        }
        if (counted_as_) {
            count_live(counted_as_, -1);
        }
        return std::unique_ptr<T>(const_cast<T *>(handle));
    }

    // Runs `body(object)` if the handle is live; it cannot be destroyed meanwhile.
    template <class Body>
    void with(const T *handle, Body &&body) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (live_.count(handle) != 0) {
            body(*const_cast<T *>(handle));
        }
    }

private:
    const char *counted_as_;
    mutable std::mutex mutex_;
    std::unordered_set<const T *> live_;
};

}  // namespace aclsim
