// SPDX-License-Identifier: Apache-2.0
// What the rest of the simulator needs to put work on a stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "acl/acl.h"
#include "core/errors.h"

namespace aclsim {

class Context;  // core/context.h
class Stream;   // core/stream.h

enum class Unit : uint8_t { None, CopyIn, CopyOut, CopyDevice, AiCore, Host };

struct Task {
    const char *kind = "task";  // static string: "memcpy_h2d", "execute", ... (timeline, fault injection)
    Unit unit = Unit::None;
    uint64_t bytes = 0;  // copies: the duration follows from the profile's bandwidth
    // AiCore: nominal time; 0 = the profile's latency for `name`, else only the real compute time.
    uint64_t duration_ns = 0;
    std::string name;  // model name, for the timeline and the profile's per-model latency
    // Runs on a compute thread, never on the caller; may be empty. Non-zero fails the task
    // with that code. Copies run it when their time is over (a late read, as DMA does), everything else when
    // the task starts. When the task is discarded (abort, forced destroy, device reset) it is destroyed
    // without having been called, possibly on an arbitrary thread and under a lock: destructors of what it
    // captures must not call ACL functions.
    std::function<aclError()> work;
    // The work takes few microseconds and only leaf locks: it runs on the dispatcher, under the device's lock, which
    // saves two thread switches. Not for copies.
    bool light = false;
};

// NULL = default stream of the thread's current context. Checks the context (107002), the handle (107017) and
// that the stream belongs to the current context (107003). Non-zero: the error is recorded already.
aclError resolve_stream(aclrtStream handle, Stream **out);

// Appends to the stream; blocks while its queue is full. Returns sticky, abort and device-loss codes
// (recorded).
aclError submit(Stream &stream, Task &&task);

// Runs the task on a hidden stream of the context, without order relative to any other, and waits for its
// result.
aclError run_blocking(Context &context, Task &&task);

// The calling thread's current context; 107002 (recorded) when there is none or it was destroyed.
aclError current_context(Context **out);

// Contexts have ids that are never reused, so that "loaded in this context" can be checked without keeping a
// pointer.
uint64_t context_id(const Context &context);
int32_t context_device(const Context &context);
int32_t stream_id(const Stream &stream);
Context &stream_context(const Stream &stream);

// [p, p + size) lies inside one live device allocation; tells whose. `device` may be null.
bool is_device_address(const void *p, size_t size, int32_t *device);

// Device memory, accounted like aclrtMalloc; 207001 (recorded) when the device has no room. Usable from any
// thread. Memory that nobody has touched need not be overwritten when it is released, which would take up real memory.
aclError allocate_device(int32_t device, size_t size, void **out);
aclError release_device(void *p, bool touched = true);

// Registers the exit handler again, so that it runs before the static destructors of libraries loaded until
// now: call after a dlopen of a library whose code `work` uses. The handler stops dispatchers and waits for
// running work.
void arm_exit_guard();

}  // namespace aclsim
