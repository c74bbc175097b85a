// SPDX-License-Identifier: Apache-2.0
// Contexts and the per-process state of devices as the ACL interface sees it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/handle.h"
#include "core/stream.h"

namespace aclsim {

class Context {
public:
    void *handle = nullptr;
    uint64_t id = 0;
    Device *device = nullptr;
    bool primary = false;

    // Guarded by the device's lock.
    Stream *default_stream = nullptr;
    std::vector<Stream *> streams;     // creation order, the default stream first
    std::vector<Stream *> idle_lanes;  // hidden streams that serve synchronous calls
    std::vector<Stream *> lanes;
    bool stop_on_failure = false;
    aclError stop_code = 0;  // latched first failure in stop mode
    bool closing = false;    // gets no more streams

    // aclrtSynchronizeDevice holds this for its whole wait; creating, destroying and aborting streams need
    // it, too.
    std::mutex stream_list;

    // Runs aclrtLaunchHostFunc functions; made when first needed. Guarded by the subscription lock.
    std::shared_ptr<ReportGroup> host_group;
    std::thread host_thread;
    bool host_closed = false;  // gets no such thread any more
};

HandleTable<Context, HandleKind::Context> &context_table();

// Live context of the calling thread and no fault latched on its device: what most calls need.
aclError working_context(Context **out);

// aclrtSetDevice and friends; codes recorded.
aclError set_device(int32_t device);
aclError reset_device(int32_t device);
aclError reset_device_force(int32_t device);
aclError create_context(int32_t device, Context **out);
aclError destroy_context(void *handle);
void set_current_context(const Context *context);
bool primary_context_active(int32_t device);
// The device's primary context, or null.
Context *primary_context(int32_t device);

}  // namespace aclsim
