// SPDX-License-Identifier: Apache-2.0
#include "core/timeline.h"

#include <mutex>
#include <unordered_set>

namespace aclsim {

const char *intern(const std::string &text) {
    static std::mutex *mutex = new std::mutex;
    static std::unordered_set<std::string> *texts = new std::unordered_set<std::string>;
    std::lock_guard<std::mutex> lock(*mutex);
    return texts->insert(text).first->c_str();
}

}  // namespace aclsim
