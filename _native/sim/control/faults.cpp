// SPDX-License-Identifier: Apache-2.0
// Control interface: faults, limits and modes.
#include <dlfcn.h>

#include <cstring>

#include "aclsim.h"
#include "control/access.h"
#include "core/calls.h"
#include "core/memory.h"
#include "core/settings.h"
#include "export.h"

using namespace aclsim;

namespace {

// Kinds of the simulator's own tasks. Others may exist (models), so that this list only names typos.
const char *const known_kinds[] = {"memcpy_h2d", "memcpy_d2h",  "memcpy_d2d",    "memset",
                                   "execute",    "callback",    "host_func",     "event_record",
                                   "event_wait", "event_reset", "notify_record", "notify_wait"};

const char *find_kind(const char *kind) {
    for (const char *known : known_kinds) {
        if (std::strcmp(known, kind) == 0) {
            return known;
        }
    }
    return nullptr;
}

aclError check_stream_of(const char *function, int32_t device, void *stream) {
    Stream *found = nullptr;
    if (stream == nullptr) {
        return 0;
    }
    if (aclError code = control_stream(function, stream, &found)) {
        return code;
    }
    return device == -1 || found->device->id == device
               ? 0
               : fail_quietly(ACL_ERROR_RT_PARAM_INVALID, "%s: the stream belongs to device %d, not to %d",
                              function, found->device->id, device);
}

aclError check_nth(const char *function, uint64_t nth) {
    return nth >= 1 ? 0 : fail_quietly(ACL_ERROR_RT_PARAM_INVALID, "%s: nth counts from 1", function);
}

aclError check_mode(const char *function, int mode) {
    return mode == 0 || mode == 1
               ? 0
               : fail_quietly(ACL_ERROR_RT_PARAM_INVALID, "%s: %d is neither 0 nor 1", function, mode);
}

// Only functions this library exports can be made to fail or to be slow.
aclError check_function(const char *caller, const char *function) {
    Dl_info info{};
    if (function != nullptr && std::strncmp(function, "acl", 3) == 0 &&
        dladdr(reinterpret_cast<const void *>(&aclsimReset), &info) != 0) {
        void *self = dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_NOW);
        const bool exported = self != nullptr && dlsym(self, function) != nullptr;
        if (self != nullptr) {
            dlclose(self);
        }
        if (exported) {
            return 0;
        }
    }
    return fail_quietly(ACL_ERROR_RT_PARAM_INVALID, "%s: the simulator has no function '%s'", caller,
                        function == nullptr ? "(null)" : function);
}

aclError set_flag(const char *function, int on, std::atomic<bool> &flag, bool value_of_one) {
    if (aclError code = check_mode(function, on)) {
        return code;
    }
    flag = (on == 1) == value_of_one;
    return 0;
}

aclError hold_reports(const char *function, int32_t device, bool on) {
    if (aclError code = each_device(function, device, [on](Device &one) { one.reports_held = on; })) {
        return code;
    }
    for (Device *one : open_devices()) {
        wake_report_groups(*one);
    }
    return 0;
}

}  // namespace

extern "C" {

ACL_EXPORT int aclsimFailTask(int32_t device, void *stream, const char *kind, uint64_t nth, int32_t code) {
    const char *known = kind == nullptr ? nullptr : find_kind(kind);
    if (kind != nullptr && known == nullptr) {
        return fail_quietly(ACL_ERROR_RT_PARAM_INVALID, "aclsimFailTask: there are no tasks of kind '%s'",
                            kind);
    }
    if (code == 0) {
        return fail_quietly(ACL_ERROR_RT_PARAM_INVALID, "aclsimFailTask: code 0 is no failure");
    }
    if (aclError bad = check_nth("aclsimFailTask", nth)) {
        return bad;
    }
    if (aclError bad = check_stream_of("aclsimFailTask", device, stream)) {
        return bad;
    }
    return each_device("aclsimFailTask", device,
                       [&](Device &one) { one.faults.fail_task(stream, known, nth, code); });
}

ACL_EXPORT int aclsimDropCallback(int32_t device, void *stream, uint64_t nth) {
    if (aclError bad = check_nth("aclsimDropCallback", nth)) {
        return bad;
    }
    if (aclError bad = check_stream_of("aclsimDropCallback", device, stream)) {
        return bad;
    }
    return each_device("aclsimDropCallback", device,
                       [&](Device &one) { one.faults.drop_callback(stream, nth); });
}

ACL_EXPORT int aclsimDelayReport(int32_t device, uint64_t ns) {
    return each_device("aclsimDelayReport", device, [ns](Device &one) { one.report_delay_ns = ns; });
}

ACL_EXPORT int aclsimHoldReports(int32_t device) { return hold_reports("aclsimHoldReports", device, true); }

ACL_EXPORT int aclsimReleaseReports(int32_t device) {
    return hold_reports("aclsimReleaseReports", device, false);
}

ACL_EXPORT int aclsimSetReportOrder(int mode) {
    return set_flag("aclsimSetReportOrder", mode, settings().shuffle_reports, true);
}

ACL_EXPORT int aclsimLoseDevice(int32_t device, int32_t code) {
    if (code == 0) {
        return fail_quietly(ACL_ERROR_RT_PARAM_INVALID, "aclsimLoseDevice: code 0 is no failure");
    }
    if (aclError bad = each_device("aclsimLoseDevice", device, [code](Device &one) { one.lose(code); })) {
        return bad;
    }
    for (Device *one : open_devices()) {
        wake_report_groups(*one);
    }
    return 0;
}

ACL_EXPORT int aclsimRestoreDevice(int32_t device) {
    return each_device("aclsimRestoreDevice", device, [](Device &one) { one.restore(); });
}

ACL_EXPORT int aclsimFailCall(const char *function, uint64_t nth, int32_t code, uint64_t times) {
    if (aclError bad = check_function("aclsimFailCall", function)) {
        return bad;
    }
    if (aclError bad = check_nth("aclsimFailCall", nth)) {
        return bad;
    }
    return inject_call_failure(function, nth, code, code == 0 ? 0 : times);
}

ACL_EXPORT int aclsimSetCallLatency(const char *function, uint64_t ns) {
    if (aclError bad = check_function("aclsimSetCallLatency", function)) {
        return bad;
    }
    return inject_call_latency(function, ns);
}

ACL_EXPORT int aclsimSetExceptionDelivery(int mode) {
    return set_flag("aclsimSetExceptionDelivery", mode, settings().exceptions_on_reap, true);
}

ACL_EXPORT int aclsimSetExceptionStream(int mode) {
    return set_flag("aclsimSetExceptionStream", mode, settings().models_have_streams, true);
}

ACL_EXPORT int aclsimLimitMemory(int32_t device, uint64_t bytes) {
    return each_device("aclsimLimitMemory", device, [bytes](Device &one) {
        set_memory_total(one.id, bytes != 0 ? bytes : one.profile().memory_bytes);
    });
}

ACL_EXPORT int aclsimSetQueueDepth(uint32_t depth) {
    constexpr uint32_t least = 4;
    if (depth != 0 && depth < least) {
        return fail_quietly(ACL_ERROR_RT_PARAM_INVALID,
                            "aclsimSetQueueDepth: %u entries; a BLOCK callback alone takes 3, "
                            "so there must be at least %u",
                            depth, least);
    }
    settings().queue_depth = depth != 0 ? depth : default_queue_depth;
    return 0;
}

ACL_EXPORT int aclsimLimitStreams(int32_t device, uint32_t n) {
    return each_device("aclsimLimitStreams", device, [n](Device &one) { one.limit_streams = n; });
}

ACL_EXPORT int aclsimLimitEvents(int32_t device, uint32_t n) {
    return each_device("aclsimLimitEvents", device, [n](Device &one) { one.limit_events = n; });
}

ACL_EXPORT int aclsimSetPageableMode(int mode) {
    return set_flag("aclsimSetPageableMode", mode, settings().pageable_blocks, false);
}

ACL_EXPORT int aclsimSetStrict(int on) { return set_flag("aclsimSetStrict", on, settings().strict, true); }

ACL_EXPORT int aclsimSetPoisonFree(int on) {
    return set_flag("aclsimSetPoisonFree", on, settings().poison_free, true);
}

}  // extern "C"
