// SPDX-License-Identifier: Apache-2.0
#include "process.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>

#include "device.h"

namespace aioascend {
namespace {

// A call of the library that takes longer is left alone: the process must end, whatever the driver does.
constexpr auto kPatienceAtExit = std::chrono::seconds(2);

std::atomic<bool> g_forked{false};
std::atomic<bool> g_shutting_down{false};

struct Registry {
    std::mutex mutex;
    std::vector<Device *> devices;
};

Registry &registry() {
    static Registry *all = new Registry;  // leaked: threads of libraries may ask during exit
    return *all;
}

}  // namespace

bool forked() {
    return g_forked.load(std::memory_order_relaxed);
}

bool shutting_down() {
    return g_shutting_down.load(std::memory_order_relaxed);
}

void watch_process() {
    static const int registered = pthread_atfork(nullptr, nullptr, [] { g_forked = true; });
    (void)registered;
}

void register_device(Device *device) {
    std::lock_guard<std::mutex> lock(registry().mutex);
    registry().devices.push_back(device);
}

void unregister_device(Device *device) {
    std::lock_guard<std::mutex> lock(registry().mutex);
    auto &all = registry().devices;
    all.erase(std::remove(all.begin(), all.end(), device), all.end());
}

OpenDevices count_open_devices() {
    OpenDevices counts;
    std::lock_guard<std::mutex> lock(registry().mutex);
    for (Device *device : registry().devices) {
        counts.devices += device->left_to_others() ? 0 : 1;
        counts.streams += device->streams().size();
    }
    return counts;
}

Openings openings_of(const Library &library, int32_t index) {
    Openings counts;
    std::lock_guard<std::mutex> lock(registry().mutex);
    for (Device *device : registry().devices) {
        if (device->is_of(library, index)) {
            ++(device->left_to_others() ? counts.left : counts.in_use);
        }
    }
    return counts;
}

void take_devices_away(const Library &library, int32_t index) {
    std::lock_guard<std::mutex> lock(registry().mutex);
    for (Device *device : registry().devices) {
        if (device->is_of(library, index)) {
            device->taken_away();
        }
    }
}

void forget_what_was_left(const Library &library, int32_t index) {
    std::lock_guard<std::mutex> lock(registry().mutex);
    auto &all = registry().devices;
    const auto left = [&](Device *device) { return device->is_of(library, index) && device->left_to_others(); };
    all.erase(std::remove_if(all.begin(), all.end(), left), all.end());
}

std::mutex &primary_context_mutex(int32_t index) {
    static auto *all = new std::array<std::mutex, 64>;  // leaked, as the registry is
    return (*all)[static_cast<uint32_t>(index) % all->size()];
}

void note_exception(uint32_t device_index, const DeviceException &exception) noexcept try {
    std::lock_guard<std::mutex> lock(registry().mutex);
    for (Device *device : registry().devices) {
        if (device->index() == static_cast<int32_t>(device_index)) {
            device->note_exception(exception);
        }
    }
} catch (...) {
    // Out of memory, and on a thread of the library: the state of the stream will have to tell.
}

void shut_down() {
    if (forked() || g_shutting_down.exchange(true)) {
        return;
    }
    std::vector<Device *> open;
    {
        std::lock_guard<std::mutex> lock(registry().mutex);
        open = registry().devices;
    }
    const auto deadline = std::chrono::steady_clock::now() + kPatienceAtExit;
    for (Device *device : open) {
        device->wake_waiters(deadline);
        device->reports().leave(deadline);
        device->worker().leave(deadline);
    }
}

uint32_t kernel_thread_id() {
    thread_local const auto id = static_cast<uint32_t>(syscall(SYS_gettid));
    return id;
}

int64_t monotonic_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * int64_t(1000000000) + now.tv_nsec;
}

}  // namespace aioascend
