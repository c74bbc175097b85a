// SPDX-License-Identifier: Apache-2.0
// Control interface: counters and the timeline.
#include <algorithm>
#include <cstring>

#include "aclsim.h"
#include "control/access.h"
#include "core/calls.h"
#include "export.h"

using namespace aclsim;

extern "C" {

ACL_EXPORT uint64_t aclsimCalls(const char *function) {
    return function == nullptr ? 0 : count_calls(function);
}

ACL_EXPORT uint64_t aclsimCallsOnThread(const char *function, uint64_t pthread_self) {
    return function == nullptr ? 0 : count_calls_on_thread(function, pthread_self);
}

ACL_EXPORT uint64_t aclsimCallbacksLaunched() {
    uint64_t total = 0;
    for (Device *device : open_devices()) {
        Lock lock(device->mutex);
        total += device->callbacks_launched;
    }
    return total;
}

ACL_EXPORT int64_t aclsimLive(const char *what) {
    if (what == nullptr || std::strcmp(what, "tasks") != 0) {
        return live_count(what);
    }
    int64_t total = 0;
    for (Device *device : open_devices()) {
        Lock lock(device->mutex);
        total += device->tasks;
    }
    return total;
}

ACL_EXPORT int aclsimTimeline(aclsimRecord *out, size_t cap, size_t *count) {
    if (count == nullptr || (out == nullptr && cap != 0)) {
        return fail_quietly(ACL_ERROR_RT_PARAM_INVALID,
                            "aclsimTimeline: needs count, and room for cap records");
    }
    std::vector<aclsimRecord> all;
    for (Device *device : open_devices()) {
        Lock lock(device->mutex);
        device->timeline.append_to(all);
    }
    if (out == nullptr) {
        *count = all.size();
        return 0;
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const aclsimRecord &a, const aclsimRecord &b) { return a.end_ns < b.end_ns; });
    *count = std::min(cap, all.size());
    std::copy(all.end() - static_cast<std::ptrdiff_t>(*count), all.end(), out);
    return 0;
}

ACL_EXPORT int aclsimClearTimeline() {
    for (Device *device : open_devices()) {
        Lock lock(device->mutex);
        device->timeline.clear();
    }
    return 0;
}

ACL_EXPORT int aclsimSetTimelineCapacity(size_t records) {
    constexpr size_t most = size_t{1} << 24;
    if (records > most) {
        return fail_quietly(ACL_ERROR_RT_PARAM_INVALID,
                            "aclsimSetTimelineCapacity: %zu records; the most is %zu", records, most);
    }
    for (int32_t i = 0; i < device_count(); ++i) {
        Device *device = device_at(i);
        Lock lock(device->mutex);
        device->timeline.set_capacity(records);
    }
    return 0;
}

}  // extern "C"
