// SPDX-License-Identifier: Apache-2.0
#include "core/process.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "core/device.h"
#include "core/pool.h"
#include "core/thread_state.h"

namespace aclsim {

namespace {

std::atomic<bool> forked{false};
std::atomic<bool> exiting{false};

// Bounds on what an exit waits for: a dispatcher may be stuck in a user's exception callback, a model may be
// long.
constexpr uint32_t dispatcher_limit_ms = 2000;
constexpr uint32_t work_limit_ms = 30000;

void leave_quietly() {
    if (forked.load() || exiting.exchange(true)) {
        return;
    }
    // exit() called on one of our own threads must not wait for that thread.
    const bool own = thread_state().on_device_thread;
    for (Device *device : open_devices()) {
        device->stop_dispatcher(own ? 0 : dispatcher_limit_ms);
    }
    copy_pool().stop(own ? 0 : work_limit_ms);
    compute_pool().stop(own ? 0 : work_limit_ms);
}

}  // namespace

bool is_forked_child() { return forked.load(std::memory_order_relaxed); }

void install_process_hooks() {
    static std::once_flag once;
    std::call_once(once, [] {
        pthread_atfork(nullptr, nullptr, [] { forked.store(true); });
        std::atexit(leave_quietly);
    });
}

void arm_exit_guard() {
    std::atexit(leave_quietly);
    guard_exit_of_this_thread();
}

void guard_exit_of_this_thread() {
    // exit() destroys the thread-local objects of its thread before it runs the first exit handler.
    struct Sentinel {
        ~Sentinel() {
            if (static_cast<uint32_t>(getpid()) == kernel_thread_id()) {
                leave_quietly();
            }
        }
    };
    thread_state();  // is used in the end, so it must be destroyed later
    thread_local Sentinel sentinel;
    (void)sentinel;
}

}  // namespace aclsim
