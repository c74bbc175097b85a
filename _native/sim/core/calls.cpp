// SPDX-License-Identifier: Apache-2.0
// Counting is per thread and without sharing, because every ACL call passes here.
#include "core/calls.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/process.h"
#include "core/settings.h"
#include "core/thread_state.h"

namespace aclsim {

namespace {

constexpr uint32_t max_sites = 512;
using Counts = std::array<std::atomic<uint64_t>, max_sites>;

struct Injection {
    uint64_t skip = 0;   // matching calls to let pass first
    uint64_t times = 0;  // calls still to fail
    aclError code = 0;
};

struct Registry {
    std::mutex mutex;
    std::vector<std::string> names;  // slot -> function
    // Threads share an id over time; an entry lives on so that counts survive the thread.
    std::map<uint64_t, std::unique_ptr<Counts>> threads;
    std::vector<Injection> failures = std::vector<Injection>(max_sites);
    std::array<std::atomic<uint64_t>, max_sites> latency_ns{};
    std::atomic<uint32_t> armed{0};  // functions with failures or latency

    uint32_t slot_of(const std::string &function) {
        for (size_t i = 0; i < names.size(); ++i) {
            if (names[i] == function) {
                return static_cast<uint32_t>(i);
            }
        }
        if (names.size() == max_sites) {
            std::fprintf(stderr, "aclsim: more than %u exported functions\n", max_sites);
            std::abort();
        }
        names.push_back(function);
        return static_cast<uint32_t>(names.size() - 1);
    }
    Counts *counts_of(uint64_t thread) {
        std::unique_ptr<Counts> &entry = threads[thread];
        if (entry == nullptr) {
            entry = std::make_unique<Counts>();
        }
        return entry.get();
    }
};

Registry &registry() {
    static Registry *instance = new Registry;
    return *instance;
}

Counts &my_counts() {
    thread_local Counts *counts = nullptr;
    if (counts == nullptr) {
        std::lock_guard<std::mutex> lock(registry().mutex);
        counts = registry().counts_of(thread_key());
    }
    return *counts;
}

aclError apply_injections(const CallSite &site) {
    Registry &all = registry();
    if (const uint64_t ns = all.latency_ns[site.slot].load(std::memory_order_relaxed)) {
        std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
    }
    aclError code = 0;
    {
        std::lock_guard<std::mutex> lock(all.mutex);
        Injection &failure = all.failures[site.slot];
        if (failure.times == 0) {
            return 0;
        }
        if (failure.skip > 0) {
            --failure.skip;
            return 0;
        }
        code = failure.code;
        if (--failure.times == 0) {
            all.armed.fetch_sub(1, std::memory_order_relaxed);
        }
    }
    return fail(code, "%s fails with %d because aclsimFailCall asked for it", site.function, code);
}

void strict_check(const CallSite &site) {
    // Reading what an exception callback was given is what the callback is for.
    if (!thread_state().in_callback || std::strstr(site.function, "FromExceptionInfo") != nullptr) {
        return;
    }
    std::fprintf(
        stderr,
        "aclsim strict mode: %s was called inside a stream callback; no ACL function may be called there. "
        "Hand the work to another thread instead.\n",
        site.function);
    std::abort();
}

// A failing call counts as "armed" for its whole life, so that the common path is one load.
void arm_difference(Registry &all, bool before, bool after) {
    if (after && !before) {
        all.armed.fetch_add(1, std::memory_order_relaxed);
    } else if (before && !after) {
        all.armed.fetch_sub(1, std::memory_order_relaxed);
    }
}

aclError vfail(aclError code, bool record, const char *format, va_list arguments) {
    char text[1024];
    const int written = std::vsnprintf(text, sizeof text, format, arguments);
    if (written > 0) {
        add_message((code < 107000 ? "EE1001: " : "EE9999: ") + std::string(text));
    }
    if (record && recorded_as_last_error(code)) {
        thread_state().last_error = code;
    }
    return code;
}

struct LiveCount {
    const char *name;
    std::atomic<int64_t> value{0};
};
LiveCount live_counts[] = {{"streams"},      {"events"},     {"notifies"},      {"contexts"},
                           {"device_bytes"}, {"host_bytes"}, {"device_blocks"}, {"host_blocks"},
                           {"models"},       {"datasets"},   {"data_buffers"},  {"subscriptions"},
                           {"tensor_descs"}, {"model_descs"}};

LiveCount *find_live(const char *what) {
    for (LiveCount &count : live_counts) {
        if (what != nullptr && std::strcmp(count.name, what) == 0) {
            return &count;
        }
    }
    return nullptr;
}

}  // namespace

CallSite::CallSite(const char *name)
    : function(name), slot([name] {
          std::lock_guard<std::mutex> lock(registry().mutex);
          return registry().slot_of(name);
      }()) {}

aclError enter(CallSite &site) {
    if (is_forked_child()) {
        return fail_quietly(
            ACL_ERROR_RT_INTERNAL_ERROR,
            "%s: this process was forked from one that used the simulator; devices do not survive "
            "fork(). Start workers with spawn or forkserver",
            site.function);
    }
    std::atomic<uint64_t> &count = my_counts()[site.slot];
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (settings().strict.load(std::memory_order_relaxed)) {
        strict_check(site);
    }
    if (registry().armed.load(std::memory_order_relaxed) != 0) {
        return apply_injections(site);
    }
    return 0;
}

aclError fail(aclError code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfail(code, true, format, arguments);
    va_end(arguments);
    return code;
}

aclError fail_quietly(aclError code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfail(code, false, format, arguments);
    va_end(arguments);
    return code;
}

uint64_t count_calls(const char *function) {
    Registry &all = registry();
    std::lock_guard<std::mutex> lock(all.mutex);
    const uint32_t slot = all.slot_of(function);
    uint64_t total = 0;
    for (const auto &thread : all.threads) {
        total += (*thread.second)[slot].load(std::memory_order_relaxed);
    }
    return total;
}

uint64_t count_calls_on_thread(const char *function, uint64_t thread) {
    Registry &all = registry();
    std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.threads.find(thread);
    return found == all.threads.end()
               ? 0
               : (*found->second)[all.slot_of(function)].load(std::memory_order_relaxed);
}

aclError inject_call_failure(const char *function, uint64_t nth, aclError code, uint64_t times) {
    Registry &all = registry();
    std::lock_guard<std::mutex> lock(all.mutex);
    Injection &failure = all.failures[all.slot_of(function)];
    arm_difference(all, failure.times != 0, times != 0);
    failure = Injection{nth - 1, times, code};
    return 0;
}

aclError inject_call_latency(const char *function, uint64_t ns) {
    Registry &all = registry();
    std::lock_guard<std::mutex> lock(all.mutex);
    std::atomic<uint64_t> &latency = all.latency_ns[all.slot_of(function)];
    arm_difference(all, latency.load() != 0, ns != 0);
    latency.store(ns);
    return 0;
}

void reset_calls() {
    Registry &all = registry();
    std::lock_guard<std::mutex> lock(all.mutex);
    for (auto &thread : all.threads) {
        for (std::atomic<uint64_t> &count : *thread.second) {
            count.store(0, std::memory_order_relaxed);
        }
    }
    for (uint32_t slot = 0; slot < max_sites; ++slot) {
        all.failures[slot] = Injection{};
        all.latency_ns[slot].store(0);
    }
    all.armed.store(0);
}

void count_live(const char *what, int64_t delta) {
    if (LiveCount *count = find_live(what)) {
        count->value.fetch_add(delta, std::memory_order_relaxed);
    }
}

int64_t live_count(const char *what) {
    const LiveCount *count = find_live(what);
    return count == nullptr ? -1 : count->value.load(std::memory_order_relaxed);
}

}  // namespace aclsim
