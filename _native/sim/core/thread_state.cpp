// SPDX-License-Identifier: Apache-2.0
#include "core/thread_state.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <mutex>

#include "core/settings.h"

namespace aclsim {

namespace {

constexpr size_t max_messages = 16;

std::mutex process_mutex;
std::vector<std::string> *process_messages = new std::vector<std::string>;

void append(std::vector<std::string> &messages, std::string text) {
    if (messages.size() == max_messages) {
        messages.erase(messages.begin());
    }
    messages.push_back(std::move(text));
}

std::string join_newest_first(std::vector<std::string> &messages) {
    std::string all;
    for (auto message = messages.rbegin(); message != messages.rend(); ++message) {
        all += *message;
        all += '\n';
    }
    messages.clear();
    return all;
}

}  // namespace

ThreadState &thread_state() {
    thread_local ThreadState state;
    return state;
}

uint64_t thread_key() { return static_cast<uint64_t>(pthread_self()); }

uint32_t kernel_thread_id() {
    thread_local const uint32_t id = static_cast<uint32_t>(syscall(SYS_gettid));
    return id;
}

void add_message(std::string text) {
    if (settings().process_messages.load(std::memory_order_relaxed)) {
        std::lock_guard<std::mutex> lock(process_mutex);
        append(*process_messages, std::move(text));
    } else {
        append(thread_state().messages, std::move(text));
    }
}

std::string take_messages() {
    if (settings().process_messages.load(std::memory_order_relaxed)) {
        std::lock_guard<std::mutex> lock(process_mutex);
        return join_newest_first(*process_messages);
    }
    return join_newest_first(thread_state().messages);
}

void name_this_thread(const char *name) { pthread_setname_np(pthread_self(), name); }

}  // namespace aclsim
