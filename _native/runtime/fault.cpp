// SPDX-License-Identifier: Apache-2.0
// What goes wrong with a device: the exceptions that its library tells of, taking it out of service, resetting it.
#include <algorithm>
#include <array>
#include <utility>

#include "device.h"
#include "process.h"

namespace aioascend {
namespace {

constexpr uint32_t kNone = UINT32_MAX;  // exceptions of the device itself name no stream and no task

void on_exception(aclrtExceptionInfo *info, const AclApi &api, const Capabilities &can) {
    const aclError code = can.exception_error_code
                              ? static_cast<aclError>(api.aclrtGetErrorCodeFromExceptionInfo(info))
                              : ACL_ERROR_RT_INTERNAL_ERROR;
    note_exception(api.aclrtGetDeviceIdFromExceptionInfo(info),
                   {api.aclrtGetStreamIdFromExceptionInfo(info), api.aclrtGetTaskIdFromExceptionInfo(info),
                    api.aclrtGetThreadIdFromExceptionInfo(info), code});
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

}  // namespace

bool device_is_gone(aclError code) {
    switch (code) {
#include "gone.inc"
        return true;
        default: return false;
    }
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

void Device::note_exception(const DeviceException &exception) {
    std::lock_guard<std::mutex> lock(exception_mutex_);
    exceptions_.push_back(exception);
    has_exceptions_.store(true, std::memory_order_release);
}

void Device::apply_exceptions() {
    if (!has_exceptions_.load(std::memory_order_acquire)) {
        return;
    }
    std::vector<DeviceException> noted;
    {
        std::lock_guard<std::mutex> lock(exception_mutex_);
        noted.swap(exceptions_);
        has_exceptions_.store(false, std::memory_order_release);
    }
    for (const DeviceException &exception : noted) {
        if (exception.stream_id == kNone && exception.task_id == kNone) {
            fail(exception.code);
            continue;
        }
        bool known = false;
        for (const auto &stream : streams()) {
            // Without stream ids any stream of the device may be meant: then all that are busy are affected.
            const bool meant = stream->id() >= 0 ? stream->id() == static_cast<int32_t>(exception.stream_id)
                                                 : stream->in_flight() != 0;
            known = known || meant;
            if (meant && !stream->mark_failed(exception.task_id, exception.code)) {
                note_exception(exception);
            }
        }
        if (!known) {
            mark_runs_failed(exception);
        }
        if (device_is_gone(exception.code)) {
            fail(exception.code);
        }
    }
}

// The stream is none of ours. It may be one of the library's own, for the kernels of a model; then the thread is the one
// that submitted the run. Another library on the same thread may be at fault as well, but who can tell?
void Device::mark_runs_failed(const DeviceException &exception) {
    std::vector<std::shared_ptr<Stream>> suspects;
    for (const auto &stream : streams()) {
        if (stream->runs_of(exception.thread_id)) {
            suspects.push_back(stream);
        }
    }
    for (const auto &stream : suspects) {
        stream->mark_run_failed(exception, suspects.size() == 1);
    }
}

void Device::told(const std::shared_ptr<Failure> &failure) {
    if (forked()) {
        return;
    }
    const auto all = streams();
    std::lock_guard<std::mutex> failures(failure_mutex);
    if (failure->told) {
        return;
    }
    for (const auto &stream : all) {
        stream->carry_over(failure);
    }
    for (const auto &stream : all) {
        stream->end_taint(*failure);
    }
    failure->told = true;
}

void Device::fail(aclError code) {
    std::lock_guard<std::mutex> lock(exception_mutex_);
    if (fault_ != 0) {
        return;
    }
    fault_failure_ = new_failure(*this, code, -1);
    fault_failure_->of_device = true;
    failed_ns_ = monotonic_ns();
    fault_.store(code, std::memory_order_release);
    worker_.post([this] { give_up_streams(); });  // the next sweep does it too, should the worker be stuck
}

void Device::give_up_streams() {
    std::lock_guard<std::mutex> settling(settle_mutex);
    apply_exceptions();
    abandon_streams();
    outbox_send();
}

void Device::abandon_streams() {
    for (const auto &stream : streams()) {
        stream->abandon(fault_failure_, Outcome::Failed);
    }
}

void Device::sweep(int64_t at_most_every_ns) {
    const int64_t now = monotonic_ns();
    if (now - last_sweep_ns_.load() <= at_most_every_ns) {
        return;
    }
    last_sweep_ns_ = now;
    std::lock_guard<std::mutex> settling(settle_mutex);
    apply_exceptions();
    for (const auto &stream : streams()) {
        if (fault_ == 0) {
            stream->sweep(now, next_flush());  // each asks anew: the device goes on meanwhile
        }
    }
    if (fault_ != 0) {
        abandon_streams();
    }
    outbox_send();
}

Health Device::health() {
    Health health;
    health.fault = fault_;
    health.failed_ns = failed_ns_;
    health.progress_ns = progress_ns;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        health.orphans = orphans_.size();
    }
    for (const auto &stream : streams()) {
        health.orphans += stream->given_up() ? 1 : 0;
        health.in_flight += stream->in_flight();
        health.queued += stream->queued();
    }
    return health;
}

aclError Device::reset_by_force() {
    if (!can().device_force_reset) {
        return ACL_ERROR_RT_FEATURE_NOT_SUPPORT;
    }
    bool first;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        first = !closed_.exchange(true);
        ending_ = true;
    }
    aclError code;
    {
        std::lock_guard<std::mutex> lock(primary_context_mutex(index_));
        code = force();
    }
    if (first) {
        unregister_device(this);
        end(true);
    }
    return code;
}

// With the primary_context_mutex, where the library can. For all in this process who have it open, what is left of an
// earlier opening included; before threads are joined, for one of them may be stuck in a call that only this ends.
aclError Device::force() {
    take_devices_away(library_, index_);
    const aclError code = api().aclrtResetDeviceForce(index_);
    if (code != 0 && code != ACL_ERROR_RT_CONTEXT_RELEASE_ERROR) {  // that one: somebody has done it already
        if (fault_ != 0) {
            fault_.store(code, std::memory_order_release);  // it was not reset, and this is why
        }
        return code;
    }
    forget_what_was_left(library_, index_);
    return 0;
}

void Device::taken_away() {
    handles_gone_ = true;  // first: what is given up from here on gives nothing back
    fail(ACL_ERROR_RT_DEVICE_TASK_ABORT);
}

// Not in order: what the device had goes with a reset by force, or is left to it. Until that it may work with what it has
// been given, and a thread that is stuck in the library may look at the rest: that is leaked.
void Device::end(bool was_reset) {
    handles_gone_ = true;
    const bool reports_ended = reports_.stop();
    const bool worker_ended = worker_.stop();
    if (!worker_ended) {
        worker_.run_rest();  // or what it was about to hand over would never arrive
    }
    for (const auto &stream : streams()) {
        stream->handle_has_gone();  // takes nothing more
    }
    give_up_streams();
    for (const auto &stream : streams()) {
        forget(*stream);
    }
    if (!was_reset || !reports_ended || !worker_ended) {
        return;
    }
    take_events();
    device_memory_.abandon();
    pinned_memory_.abandon();
    ended_ = true;
}

}  // namespace aioascend
