// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "bridge.h"
#include "context_guard.h"
#include "process.h"

namespace aioascend {
Device::Device(const Library &library, int32_t index, const Options &options)
    : library_(library),
      index_(index),
      options_(options),
      device_memory_(*this, MemoryKind::Device, options.device_cache_bytes),
      pinned_memory_(*this, MemoryKind::Pinned, options.pinned_cache_bytes),
      worker_(*this),
      reports_(*this) {}

aclError Device::open() {
    watch_process();
    aclError code = api().aclInit(nullptr);
    if (code != 0 && code != ACL_ERROR_REPEAT_INITIALIZE) {
        return code;
    }
    if ((code = watch_exceptions(library_)) != 0) {
        return code;
    }
    std::lock_guard<std::mutex> lock(primary_context_mutex(index_));
    if ((code = set_device()) != 0) {
        return code;
    }
    try {
        worker_.start();
        reports_.start();
    } catch (const std::system_error &) {  // the process may start no more threads
        worker_.stop();
        api().aclrtResetDevice(index_);
        return ACL_ERROR_RT_RESOURCE_ALLOC_FAIL;
    }
    progress_ns = monotonic_ns();
    fault_ = 0;
    handles_gone_ = false;
    ending_ = false;
    ended_ = false;
    closed_ = false;
    register_device(this);
    return 0;
}

aclError Device::set_device() {
    aclrtContext previous = nullptr;
    if (api().aclrtGetCurrentContext(&previous) != 0) {
        previous = nullptr;
    }
    aclError code = api().aclrtSetDevice(index_);
    if (device_is_gone(code) && can().device_force_reset && force() == 0) {
        code = api().aclrtSetDevice(index_);  // it was lost when this process closed it, and has come back since
    }
    if (code != 0) {
        return code;
    }
    code = api().aclrtGetCurrentContext(&context_);
    if (previous != nullptr) {
        api().aclrtSetCurrentContext(previous);
    }
    if (code != 0) {
        api().aclrtResetDevice(index_);
    }
    return code;
}

aclError Device::close() {
    if (forked()) {
        return 0;
    }
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (closed_.exchange(true)) {
            return 0;
        }
    }
    {
        std::unique_lock<std::mutex> lock(mutex_);
        const auto over = [this] {
            return (streams_.empty() && (calls_ == 0 || fault_ != 0)) || handles_gone_ || shutting_down();
        };
        while (!streams_changed_.wait_for(lock, std::chrono::milliseconds(100), over)) {
        }  // nobody says so when a fault comes
        if (shutting_down()) {
            return 0;  // whoever shuts down stops the threads
        }
        ending_ = true;
    }
    const bool in_order = !(lost() && can().device_force_reset) && give_back_in_order();
    bool was_reset = false;
    const aclError code = leave(in_order, was_reset);
    if (!in_order) {
        end(was_reset);
    } else if (!left_to_others_) {
        device_memory_.free_quarantined();
        pinned_memory_.free_quarantined();
        ended_ = true;  // from here on it may be deleted
    }
    return code == ACL_ERROR_RT_CONTEXT_RELEASE_ERROR ? 0 : code;  // somebody has reset it
}

// Without a context somebody has reset the device already, and what there is of it now is not ours.
bool Device::lost() const {
    return fault_ != 0 && fault_ != ACL_ERROR_RT_CONTEXT_NULL && fault_ != ACL_ERROR_RT_PARAM_INVALID;
}

// False where it takes a reset by force: a thread is stuck in the library, or work goes on that nobody can stop.
bool Device::give_back_in_order() {
    if (!reports_.stop() || handles_gone_ || (fault_ == 0 && end_orphans() && can().device_force_reset)) {
        return false;
    }
    worker_.post([this] {
        device_memory_.close();
        pinned_memory_.close();
    });
    if (!worker_.stop()) {
        return false;
    }
    for (aclrtEvent event : take_events()) {
        if (!handles_gone_) {
            api().aclrtDestroyEvent(event);
        }
    }
    return true;
}

// The device itself, which others may have open, or be about to open. A reset by force is left to the last of them; if it
// fails, there is nothing to be done.
aclError Device::leave(bool in_order, bool &was_reset) {
    std::lock_guard<std::mutex> lock(primary_context_mutex(index_));
    const Openings all = openings_of(library_, index_);
    const bool takes_force = can().device_force_reset && (!in_order || lost());
    aclError code = 0;
    was_reset = handles_gone_;
    if (!was_reset && takes_force && all.in_use > 1) {
        left_to_others_ = true;
        return 0;
    }
    if (!was_reset && (takes_force || (can().device_force_reset && all.left != 0 && all.in_use == 1))) {
        was_reset = force() == 0 || lost();  // a lost device does nothing any more, even if it does not come back
    } else if (!was_reset && in_order && fault_ == 0) {
        code = api().aclrtResetDevice(index_);
    }
    unregister_device(this);
    return code;
}

void Device::keep_orphan(Stream &stream) {
    std::lock_guard<std::mutex> lock(mutex_);
    orphans_.push_back(stream.shared_from_this());
}

bool Device::end_orphans() {
    std::vector<std::shared_ptr<Stream>> orphans;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        orphans.swap(orphans_);
    }
    bool left = false;
    for (const auto &stream : orphans) {
        bool complete;
        if (stream->query_own(complete) == 0 && complete) {
            ContextGuard guard(api(), context_);
            api().aclrtDestroyStream(stream->own_handle());
        } else {
            left = true;
        }
    }
    return left;
}

std::unordered_set<aclrtEvent> Device::take_events() {
    std::lock_guard<std::mutex> lock(events_mutex_);
    for (Marker *marker : buried_) {
        if (marker->event != nullptr) {
            events_.insert(marker->event);
        }
        delete marker;
    }
    buried_.clear();
    return std::exchange(events_, {});
}

bool Device::begin_call(bool even_when_closed) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (ending_ || (closed_ && !even_when_closed)) {
        return false;
    }
    ++calls_;
    return true;
}

void Device::end_call() {
    std::lock_guard<std::mutex> lock(mutex_);
    --calls_;
    streams_changed_.notify_all();
}

bool Device::close_later() {
    const auto left = streams();
    const bool idle = std::all_of(left.begin(), left.end(), [](const auto &stream) { return stream->idle(); });
    std::unique_lock<std::mutex> lock(mutex_);
    if (idle && calls_ == 0) {
        return false;  // those that are left are about to be destroyed
    }
    lock.unlock();
    // Not on a thread that the interpreter would wait for: what is in flight may never end.
    std::thread([this] { close(); }).detach();
    return true;
}

aclError Device::create_stream(uint32_t priority, uint32_t flags, std::shared_ptr<Stream> &out) {
    ContextGuard guard(api(), context_);
    if (guard.status() != 0) {
        return guard.status();
    }
    aclrtStream handle = nullptr;
    aclError code = can().stream_config ? api().aclrtCreateStreamWithConfig(&handle, priority, flags)
                                        : api().aclrtCreateStream(&handle);
    if (code != 0) {
        return code;
    }
    if ((code = reports_.subscribe(handle)) != 0) {
        api().aclrtDestroyStream(handle);
        return code;
    }
    return adopt(std::make_shared<Stream>(*this, handle, nullptr), out);
}

aclError Device::wrap_stream(aclrtStream handle, std::shared_ptr<Stream> &out) {
    ContextGuard guard(api(), context_);
    if (guard.status() != 0) {
        return guard.status();
    }
    aclrtStream waiter = nullptr;
    if (can().stream_get_id) {
        int32_t id;
        if (const aclError code = api().aclrtStreamGetId(handle, &id)) {
            return code;  // not a stream
        }
    }
    if (can().launch_callback) {
        aclError code = api().aclrtCreateStream(&waiter);
        if (code == 0 && (code = reports_.subscribe(waiter)) != 0) {
            api().aclrtDestroyStream(waiter);
        }
        if (code != 0) {
            return code;
        }
    }
    return adopt(std::make_shared<Stream>(*this, handle, waiter, true), out);
}

aclError Device::adopt(std::shared_ptr<Stream> stream, std::shared_ptr<Stream> &out) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!closed_) {
            out = std::move(stream);
            streams_.push_back(out);
            return 0;
        }
    }
    stream->destroy();  // the device was closed meanwhile
    return ACL_ERROR_RT_CONTEXT_NULL;
}

void Device::forget(Stream &stream) {
    std::lock_guard<std::mutex> lock(mutex_);
    streams_.erase(std::remove_if(streams_.begin(), streams_.end(),
                                  [&](const std::shared_ptr<Stream> &s) { return s.get() == &stream; }),
                   streams_.end());
    streams_changed_.notify_all();
}

std::vector<std::shared_ptr<Stream>> Device::streams() {
    std::lock_guard<std::mutex> lock(mutex_);
    return streams_;
}

void Device::unblock_streams() {
    for (const auto &stream : streams()) {
        stream->unblock();
    }
}

void Device::bury(Marker *marker) {
    buried_.push_back(marker);
}

void Device::wake_waiters(std::chrono::steady_clock::time_point deadline) {
    for (const auto &stream : streams()) {
        stream->wake_waiters(deadline);
    }
    streams_changed_.notify_all();
}

void Device::outbox_add(Ticket *ticket) {
    if (ticket->bridge == nullptr) {
        TicketList one;
        one.append(ticket);
        Bridge::orphans().push(one);
        return;
    }
    for (auto &[bridge, tickets] : outbox_) {
        if (bridge == ticket->bridge) {
            tickets.append(ticket);
            return;
        }
    }
    outbox_.emplace_back(ticket->bridge, TicketList{});
    outbox_.back().second.append(ticket);
}

size_t Device::outbox_send() {
    if (!outbox_.empty()) {
        progress_ns = monotonic_ns();
    }
    size_t least = outbox_.empty() ? 0 : SIZE_MAX;
    for (auto &[bridge, tickets] : outbox_) {
        least = std::min(least, bridge->push(tickets));
    }
    outbox_.clear();
    return least;
}

}  // namespace aioascend
