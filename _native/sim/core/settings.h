// SPDX-License-Identifier: Apache-2.0
// Process-wide knobs of the control interface. Read without a lock wherever they matter.
#pragma once

#include <atomic>
#include <cstdint>

namespace aclsim {

constexpr uint32_t default_queue_depth = 2013;

struct Settings {
    std::atomic<uint32_t> queue_depth{default_queue_depth};
    std::atomic<bool> pageable_blocks{true};
    std::atomic<bool> strict{false};
    std::atomic<bool> poison_free{true};
    std::atomic<bool> exceptions_on_reap{false};
    std::atomic<bool> models_have_streams{false};
    std::atomic<bool> shuffle_reports{false};
    std::atomic<uint32_t> op_wait_timeout_s{0};
    std::atomic<bool> process_messages{false};  // err_msg_mode "1" of aclInit's configuration
    std::atomic<int32_t> default_device{-1};    // defaultDevice of the same; -1: none

    void reset();  // everything but what the ACL interface itself sets
};

Settings &settings();

}  // namespace aclsim
