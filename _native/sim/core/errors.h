// SPDX-License-Identifier: Apache-2.0
// How every exported function begins (ACL_ENTER) and how it fails (fail).
#pragma once

#include <cstdint>

#include "acl/acl.h"

namespace aclsim {

// Code range that the ACL layer itself produces; those never reach the thread's last error.
inline bool recorded_as_last_error(aclError code) {
    return (code >= 107000 && code < 108000) || (code >= 207000 && code < 208000) ||
           (code >= 507000 && code < 508000);
}

// Records the thread's last error (runtime-layer codes only) and a message for aclGetRecentErrMsg; returns
// code. The message should name the bad value and the way out.
aclError fail(aclError code, const char *format, ...) __attribute__((format(printf, 2, 3)));

// The same without touching the last error: for results that the real runtime returns on its no-log path.
aclError fail_quietly(aclError code, const char *format, ...) __attribute__((format(printf, 2, 3)));

// One exported function: its name and its slot in the call counters. Constructed once per function.
class CallSite {
public:
    explicit CallSite(const char *function);
    const char *const function;
    const uint32_t slot;
};

// Counts the call, applies injected failures and latency, refuses calls in a forked child (507000), and in
// strict mode aborts on calls made from inside a stream callback. Non-zero means: return this code, it is
// recorded already.
aclError enter(CallSite &site);

// Number of live objects of a kind ("models", "datasets", "data_buffers", ...), as aclsimLive reports it.
void count_live(const char *what, int64_t delta);

}  // namespace aclsim

// First line of every exported function: ACL_ENTER(aclrtMalloc); for functions that do not return an aclError
// give the value to return when the call is refused: ACL_ENTER_OR(aclmdlGetNumInputs, 0);
#define ACL_ENTER_OR(function, refused)                 \
    do {                                                \
        static ::aclsim::CallSite call_site(#function); \
        if (::aclsim::enter(call_site) != 0) {          \
            return refused;                             \
        }                                               \
    } while (false)

#define ACL_ENTER(function)                                   \
    do {                                                      \
        static ::aclsim::CallSite call_site(#function);       \
        if (aclError refused_ = ::aclsim::enter(call_site)) { \
            return refused_;                                  \
        }                                                     \
    } while (false)
