// SPDX-License-Identifier: Apache-2.0
// What a simulated device is like: sizes, speeds and limits. Read from TOML files in the profiles directory.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "core/task.h"

namespace aclsim {

// The defaults are the profile "instant": every duration is zero.
struct Profile {
    std::string name = "instant";
    std::string soc_name = "Ascend310P3";
    uint32_t ai_cores = 8;
    uint32_t copy_engines = 1;  // for each direction, and for copies inside the device
    uint64_t memory_bytes = 8ull << 30;
    double h2d_gbps = 0;  // 10^9 bytes per second; 0 = takes no time
    double d2h_gbps = 0;
    double d2d_gbps = 0;
    uint64_t copy_latency_ns = 0;
    uint64_t launch_overhead_ns = 0;
    uint64_t callback_latency_ns = 0;
    uint32_t stream_limit = 1024;
    uint32_t event_limit = 1023;
    uint32_t notify_limit = 1024;
    std::unordered_map<std::string, uint64_t> model_latency_ns;

    // Nominal time of a task, launch overhead not included.
    uint64_t nominal_ns(Unit unit, uint64_t bytes) const;
    uint64_t model_ns(const std::string &model) const;
    // Copies take no time.
    bool instant() const {
        return h2d_gbps == 0 && d2h_gbps == 0 && d2d_gbps == 0 && copy_latency_ns == 0 &&
               launch_overhead_ns == 0;
    }
};

// By name (in the profiles directory) or path. False: `error` says what is wrong and what would do.
bool load_profile(const std::string &name_or_path, Profile *out, std::string *error);

// Directory of the named profiles; empty = the one beside the library.
void set_profile_directory(const std::string &path);

}  // namespace aclsim
