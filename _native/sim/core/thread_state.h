// SPDX-License-Identifier: Apache-2.0
// What the simulator keeps per host thread: last error, messages, last task id, where the thread is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "acl/acl.h"

namespace aclsim {

struct ThreadState {
    aclError last_error = 0;
    std::vector<std::string> messages;  // oldest first
    std::string returned_message;       // what the last aclGetRecentErrMsg handed out
    uint32_t last_task_id = 0;
    void *current_context = nullptr;  // handle
    bool in_callback = false;         // inside a stream callback, host function or exception callback
    bool on_device_thread = false;    // a dispatcher, worker or hidden host-function thread
};

ThreadState &thread_state();

// pthread_self() as a number, which is how the report interface names threads.
uint64_t thread_key();
// Kernel thread id, which is how exception information names them.
uint32_t kernel_thread_id();

// Text for aclGetRecentErrMsg of this thread (or of the process, by err_msg_mode), newest last.
void add_message(std::string text);
// Takes all messages, newest first, one a line; empty when there are none.
std::string take_messages();

// Marks the thread as running user code on behalf of the device.
class CallbackScope {
public:
    CallbackScope() : outer_(thread_state().in_callback) { thread_state().in_callback = true; }
    ~CallbackScope() { thread_state().in_callback = outer_; }
    CallbackScope(const CallbackScope &) = delete;
    CallbackScope &operator=(const CallbackScope &) = delete;

private:
    bool outer_;
};

void name_this_thread(const char *name);

}  // namespace aclsim
