// SPDX-License-Identifier: Apache-2.0
// Life of a device: the table of devices, opening, profiles, streams.
#include "core/device.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "core/inflight.h"
#include "core/memory.h"
#include "core/process.h"
#include "core/settings.h"
#include "spinning.h"

namespace aclsim {

namespace {

struct Devices {
    std::array<std::atomic<Device *>, max_devices> table{};
    std::mutex mutex;
    std::atomic<int32_t> count{0};
};

Devices &devices() {
    static Devices *all = new Devices;
    return *all;
}

}  // namespace

int32_t device_count() {
    int32_t count = devices().count.load();
    if (count == 0) {
        constexpr int32_t otherwise = 2;
        const char *text = std::getenv("AIOASCEND_SIM_DEVICES");
        count = text == nullptr ? otherwise : std::atoi(text);
        if (count < 1 || count > max_devices) {
            std::fprintf(stderr,
                         "aclsim: AIOASCEND_SIM_DEVICES='%s' is not a number from 1 to %d; using %d\n", text,
                         max_devices, otherwise);
            count = otherwise;
        }
        devices().count.store(count);
    }
    return count;
}

bool set_device_count(int32_t count) {
    if (count < 0 || count > max_devices) {
        return false;
    }
    devices().count.store(count);
    return true;
}

Device *device_at(int32_t device) {
    if (device < 0 || device >= device_count()) {
        return nullptr;
    }
    std::atomic<Device *> &slot = devices().table[static_cast<size_t>(device)];
    Device *found = slot.load(std::memory_order_acquire);
    if (found == nullptr) {
        std::lock_guard<std::mutex> lock(devices().mutex);
        found = slot.load(std::memory_order_acquire);
        if (found == nullptr) {
            found = new Device(device);
            slot.store(found, std::memory_order_release);
        }
    }
    return found;
}

std::vector<Device *> open_devices() {
    std::vector<Device *> open;
    for (std::atomic<Device *> &slot : devices().table) {
        if (Device *device = slot.load(std::memory_order_acquire)) {
            open.push_back(device);
        }
    }
    return open;
}

aclError invalid_device(int32_t device) {
    return fail(ACL_ERROR_RT_INVALID_DEVICEID, "there is no device %d; ids are 0 to %d", device,
                device_count() - 1);
}

const Profile &default_profile() {
    static const Profile *profile = [] {
        auto *loaded = new Profile;
        const char *name = std::getenv("AIOASCEND_SIM_PROFILE");
        std::string error;
        if (name != nullptr && *name != '\0' && !load_profile(name, loaded, &error)) {
            std::fprintf(stderr, "aclsim: AIOASCEND_SIM_PROFILE: %s\n", error.c_str());
            *loaded = Profile();
        }
        return loaded;
    }();
    return *profile;
}

Device::Device(int32_t device_id) : id(device_id) {
    common::spin_before_sleep(mutex);
    set_profile(default_profile());
}

void Device::set_profile(const Profile &profile) {
    profile_ = profile;
    ai_cores_.resize(profile.ai_cores);
    grant_units(ai_cores_);
    for (UnitSet *engines : {&copy_in_, &copy_out_, &copy_device_}) {
        engines->resize(profile.copy_engines);
        grant_units(*engines);
    }
    set_memory_total(id, profile.memory_bytes);
}

void Device::open() {
    if (open_) {
        return;
    }
    open_ = true;
    stopped_ = false;
    install_process_hooks();
    sim_clock().join(id, &waker_);
    std::thread([this] { run(); }).detach();
}

void Device::stop_dispatcher(uint32_t limit_ms) {
    Lock lock(mutex);
    stopping_ = true;
    wake_waiters(nullptr, ACL_ERROR_RT_INTERNAL_ERROR);
    waker_.wake();
    stopped_condition_.wait_for(lock, std::chrono::milliseconds(limit_ms), [this] { return stopped_; });
}

aclError Device::make_stream(Context &context, uint32_t priority, uint32_t flags, bool hidden, Stream **out) {
    if (context.closing) {
        return ACL_ERROR_RT_CONTEXT_NULL;
    }
    if (!hidden && streams_in_use >= stream_limit()) {
        return ACL_ERROR_RT_NO_STREAM_RESOURCE;
    }
    Stream *stream = stream_table().allocate();
    if (stream == nullptr) {
        return ACL_ERROR_RT_NO_STREAM_RESOURCE;
    }
    stream->reset(*this, context);
    stream->priority = priority;
    stream->flags = flags;
    stream->hidden = hidden;
    if (hidden) {
        stream->id = -1;
        context.lanes.push_back(stream);
    } else {
        ++streams_in_use;
        if (free_stream_ids_.empty()) {
            stream->id = next_stream_id_++;
        } else {
            stream->id = *free_stream_ids_.begin();
            free_stream_ids_.erase(free_stream_ids_.begin());
        }
        context.streams.push_back(stream);
    }
    stream_table().publish(*stream);
    *out = stream;
    return 0;
}

void Device::free_stream(Stream &stream) {
    stream_table().retract(stream);
    for (HostWaiter *waiter : waiters_) {
        if (waiter->stream == &stream) {
            wake_one(*waiter, ACL_ERROR_RT_INVALID_HANDLE);
        }
    }
    std::vector<Stream *> &list = stream.hidden ? stream.context->lanes : stream.context->streams;
    list.erase(std::remove(list.begin(), list.end(), &stream), list.end());
    if (!stream.hidden) {
        --streams_in_use;
        free_stream_ids_.insert(stream.id);
    }
    ++stream.generation;
    stream.state = StreamState::Idle;
    stream.queue.release_memory();
    space_freed_.erase(std::remove(space_freed_.begin(), space_freed_.end(), &stream), space_freed_.end());
    stream_table().recycle(stream);
}

int32_t Device::utilization() {
    Lock lock(mutex);
    const uint64_t now = sim_clock().now();
    const uint64_t span = (now - utilization_asked_ns_) * ai_cores_.count();
    const uint64_t busy = ai_cores_.busy_ns() - utilization_busy_ns_;
    utilization_asked_ns_ = now;
    utilization_busy_ns_ = ai_cores_.busy_ns();
    return span == 0 ? 0 : static_cast<int32_t>(std::min<uint64_t>(100, busy * 100 / span));
}

void Stream::reset(Device &owner, Context &context_of) {
    device = &owner;
    context = &context_of;
    priority = flags = overflow_switch = custom_tag = cache_op_info = 0;
    is_default = hidden = false;
    used_slots = next_task_id = 0;
    submitted = finished = 0;
    state = StreamState::Idle;
    held = false;
    steps = 0;
    free_at = start_ns = due_ns = 0;
    unit_index = -1;
    planned_failure = result = 0;
    work_done = cancel = aborting = closing = false;
    block_ticket = 0;
    error = 0;
    error_text.clear();
    failure_text.clear();
    unreported.clear();
    reaper = std::thread::id();
    group.reset();
    group_is_hidden = false;
}

void EntryQueue::grow() {
    std::vector<Entry> larger(ring_.empty() ? 16 : ring_.size() * 2);
    for (size_t i = 0; i < count_; ++i) {
        larger[i] = at(i);
    }
    ring_.swap(larger);
    head_ = 0;
}

HandleTable<Stream, HandleKind::Stream> &stream_table() {
    static auto *table = new HandleTable<Stream, HandleKind::Stream>;
    return *table;
}
HandleTable<Event, HandleKind::Event> &event_table() {
    static auto *table = new HandleTable<Event, HandleKind::Event>;
    return *table;
}
HandleTable<Notify, HandleKind::Notify> &notify_table() {
    static auto *table = new HandleTable<Notify, HandleKind::Notify>;
    return *table;
}

void check_not_in_flight(const void *p, size_t size, const char *function) {
    if (!settings().strict.load(std::memory_order_relaxed)) {
        return;
    }
    for (Device *device : open_devices()) {
        Lock lock(device->mutex);
        if (device->in_flight_uses(p, size)) {
            std::fprintf(
                stderr,
                "aclsim strict mode: %s(%p) while a task in flight on device %d still uses that memory. "
                "Synchronise the stream first.\n",
                function, p, static_cast<int>(device->id));
            std::abort();
        }
    }
}

}  // namespace aclsim
