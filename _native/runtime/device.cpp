// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <algorithm>
#include <array>
#include <system_error>
#include <utility>

#include "bridge.h"
#include "context_guard.h"
#include "process.h"

namespace aioascend {
namespace {

constexpr uint32_t kWholeDevice = UINT32_MAX;  // exceptions of the device itself name no stream and no task

void on_exception(aclrtExceptionInfo *info, const AclApi &api, const Capabilities &can) {
    const aclError code = can.exception_error_code
                              ? static_cast<aclError>(api.aclrtGetErrorCodeFromExceptionInfo(info))
                              : ACL_ERROR_RT_INTERNAL_ERROR;
    note_exception(api.aclrtGetDeviceIdFromExceptionInfo(info), api.aclrtGetStreamIdFromExceptionInfo(info),
                   api.aclrtGetTaskIdFromExceptionInfo(info), code);
}

// The callback carries no user data, so the library that calls is found here: one slot per loaded library.
constexpr size_t kSlots = 8;
const Library *g_libraries[kSlots] = {};

template <size_t Slot>
void exception_callback(aclrtExceptionInfo *info) {
    on_exception(info, g_libraries[Slot]->api, g_libraries[Slot]->can);
}

template <size_t... Slots>
std::array<aclrtExceptionInfoCallback, kSlots> make_callbacks(std::index_sequence<Slots...>) {
    return {exception_callback<Slots>...};
}

aclError watch_exceptions(const Library &library) {
    static std::mutex mutex;
    static const auto callbacks = make_callbacks(std::make_index_sequence<kSlots>{});
    std::lock_guard<std::mutex> lock(mutex);
    for (size_t slot = 0; slot < kSlots; ++slot) {
        if (g_libraries[slot] != nullptr && g_libraries[slot]->handle == library.handle) {
            return 0;
        }
        if (g_libraries[slot] == nullptr) {
            if (!library.can.exception_info || !(library.can.exception_register || library.can.exception_set)) {
                return 0;  // failures are seen through the state of the streams only
            }
            g_libraries[slot] = &library;
            const aclError code = library.can.exception_register
                                      ? library.api.aclrtExceptionInfoCallbackRegister(callbacks[slot])
                                      : library.api.aclrtSetExceptionInfoCallback(callbacks[slot]);
            if (code != 0) {
                g_libraries[slot] = nullptr;
            }
            return code;
        }
    }
    return ACL_ERROR_INTERNAL_ERROR;
}

}  // namespace

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
    aclrtContext previous = nullptr;
    if (api().aclrtGetCurrentContext(&previous) != 0) {
        previous = nullptr;
    }
    if ((code = api().aclrtSetDevice(index_)) != 0) {
        return code;
    }
    code = api().aclrtGetCurrentContext(&context_);
    if (previous != nullptr) {
        api().aclrtSetCurrentContext(previous);
    }
    if (code != 0) {
        api().aclrtResetDevice(index_);
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
    fault_ = 0;
    ended_ = false;
    closed_ = false;
    register_device(this);
    return 0;
}

aclError Device::close() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (closed_.exchange(true) || forked()) {
            return 0;
        }
    }
    {
        std::unique_lock<std::mutex> lock(mutex_);
        streams_changed_.wait(lock, [this] { return streams_.empty() || shutting_down(); });
        if (shutting_down()) {
            return 0;  // whoever shuts down stops the threads
        }
    }
    reports_.stop();
    worker_.post([this] {
        device_memory_.close();
        pinned_memory_.close();
    });
    worker_.stop();
    unregister_device(this);
    for (Marker *marker : buried_) {
        if (marker->event != nullptr) {
            api().aclrtDestroyEvent(marker->event);
        }
        delete marker;
    }
    buried_.clear();
    std::unordered_set<aclrtEvent> left;
    {
        std::lock_guard<std::mutex> lock(events_mutex_);
        left.swap(events_);
    }
    for (aclrtEvent event : left) {
        api().aclrtDestroyEvent(event);
    }
    aclError code = api().aclrtResetDevice(index_);
    if (code == ACL_ERROR_RT_LOST_HEARTBEAT || code == ACL_ERROR_RT_SOCKET_CLOSE) {
        // A lost device has nothing left to give back in order. If the force fails too, there is nothing to be done.
        if (can().device_force_reset) {
            api().aclrtResetDeviceForce(index_);
        }
        code = 0;
    }
    device_memory_.free_quarantined();
    pinned_memory_.free_quarantined();
    ended_ = true;
    return code;
}

bool Device::close_later() {
    const auto left = streams();
    if (std::all_of(left.begin(), left.end(), [](const auto &stream) { return stream->idle(); })) {
        return false;  // those that are left are about to be destroyed
    }
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

void Device::told(const std::shared_ptr<Failure> &failure) {
    const auto all = streams();
    std::lock_guard<std::mutex> failures(failure_mutex);
    if (failure->told) {
        return;
    }
    for (const auto &stream : all) {
        stream->taint_behind_waits(failure);
    }
    for (const auto &stream : all) {
        stream->close_taint(*failure);
    }
    failure->told = true;
}

void Device::note_exception(uint32_t stream_id, uint32_t task_id, aclError code) {
    std::lock_guard<std::mutex> lock(exception_mutex_);
    exceptions_.push_back({stream_id, task_id, code});
    has_exceptions_.store(true, std::memory_order_release);
}

void Device::apply_exceptions() {
    if (!has_exceptions_.load(std::memory_order_acquire)) {
        return;
    }
    std::vector<Exception> noted;
    {
        std::lock_guard<std::mutex> lock(exception_mutex_);
        noted.swap(exceptions_);
        has_exceptions_.store(false, std::memory_order_release);
    }
    for (const Exception &exception : noted) {
        if (exception.stream_id == kWholeDevice) {
            fault_ = exception.code;
            continue;
        }
        for (const auto &stream : streams()) {
            // Without stream ids any stream of the device may be meant: then all that are busy are affected.
            const bool meant = stream->id() >= 0 ? stream->id() == static_cast<int32_t>(exception.stream_id)
                                                 : stream->in_flight() != 0;
            if (meant && !stream->mark_failed(exception.task_id, exception.code)) {
                note_exception(exception.stream_id, exception.task_id, exception.code);
            }
        }
    }
}

void Device::bury(Marker *marker) {
    buried_.push_back(marker);
}

void Device::wake_waiters() {
    for (const auto &stream : streams()) {
        stream->wake_waiters();
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
    size_t least = outbox_.empty() ? 0 : SIZE_MAX;
    for (auto &[bridge, tickets] : outbox_) {
        least = std::min(least, bridge->push(tickets));
    }
    outbox_.clear();
    return least;
}

}  // namespace aioascend
