// SPDX-License-Identifier: Apache-2.0
#include "core/report.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <unordered_map>
#include <utility>

#include "core/device.h"
#include "core/settings.h"
#include "core/thread_state.h"

namespace aclsim {

namespace {

constexpr size_t max_groups = 1024;

struct Subscriptions {
    std::mutex mutex;
    std::unordered_map<uint64_t, std::shared_ptr<ReportGroup>> by_thread;
    std::unordered_map<uint64_t, std::shared_ptr<ReportGroup>> hidden;  // by context id
};

Subscriptions &subscriptions() {
    static Subscriptions *instance = new Subscriptions;
    return *instance;
}

// Random order across streams; what a stream posted first stays first.
void shuffle_streams(std::vector<Report> &batch) {
    static thread_local std::minstd_rand random(20240229);
    std::vector<void *> order;
    std::unordered_map<void *, std::vector<Report>> by_stream;
    for (const Report &report : batch) {
        order.push_back(report.stream);
        by_stream[report.stream].push_back(report);
    }
    std::shuffle(order.begin(), order.end(), random);
    std::unordered_map<void *, size_t> next;
    for (size_t i = 0; i < order.size(); ++i) {
        batch[i] = by_stream[order[i]][next[order[i]]++];
    }
}

bool has_block_callbacks(Stream &stream) {
    for (size_t i = 0; i < stream.queue.size(); ++i) {
        const Entry &entry = stream.queue.at(i);
        if (entry.op == Op::Callback && entry.block) {
            return true;
        }
    }
    return false;
}

// Subscription lock held. False: the stream is being destroyed, and its subscription may have been dropped already.
bool attach(Stream &stream, std::shared_ptr<ReportGroup> group, bool hidden) {
    Lock lock(stream.device->mutex);
    if (stream.closing) {
        return false;
    }
    stream.group = std::move(group);
    stream.group_is_hidden = hidden;
    count_live("subscriptions", 1);
    return true;
}

aclError fail_closing(const Stream &stream) {
    return fail(ACL_ERROR_RT_INVALID_HANDLE, "stream %d is being destroyed", stream.id);
}

// Subscription lock held.
void detach(Stream &stream) {
    std::shared_ptr<ReportGroup> group;
    {
        Lock lock(stream.device->mutex);
        group.swap(stream.group);
        if (group == nullptr) {
            return;
        }
        count_live("subscriptions", -1);
    }
    if (!stream.group_is_hidden && --group->streams == 0) {
        subscriptions().by_thread.erase(group->thread);
        group->close();
    }
    stream.group_is_hidden = false;
}

void serve_host_functions(const std::shared_ptr<ReportGroup> &group) {
    name_this_thread("aclsim-hostfunc");
    thread_state().on_device_thread = true;
    while (group->process(-1) == 0) {
    }
}

}  // namespace

bool ReportGroup::post(const Report &report) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) {
        return false;
    }
    queue_.push_back(report);
    return std::exchange(waiting_, false);
}

void ReportGroup::wake() {
    std::lock_guard<std::mutex> lock(mutex_);
    arrived_.notify_all();
}

void ReportGroup::close() {
    std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    queue_.clear();
    arrived_.notify_all();
}

bool ReportGroup::deliverable() const {
    return !queue_.empty() && !device.reports_held.load(std::memory_order_acquire);
}

aclError ReportGroup::process(int32_t timeout_ms) {
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(std::max(timeout_ms, 0));
    std::unique_lock<std::mutex> lock(mutex_);
    if (processing_) {
        lock.unlock();
        return fail(ACL_ERROR_RT_INTERNAL_ERROR,
                    "aclrtProcessReport was called from inside a callback; on a device "
                    "this deadlocks");
    }
    for (;;) {
        if (closed_) {
            lock.unlock();
            return fail(ACL_ERROR_RT_THREAD_SUBSCRIBE, "the last stream of this thread was unsubscribed");
        }
        if (aclError code = device.fault_seen.load(std::memory_order_acquire)) {
            lock.unlock();
            return fail(code, "device %d is lost (%d): its callbacks will not run", device.id, code);
        }
        if (deliverable()) {
            break;
        }
        waiting_ = true;
        if (timeout_ms < 0) {
            arrived_.wait(lock);
        } else if (arrived_.wait_until(lock, deadline) == std::cv_status::timeout && !deliverable()) {
            waiting_ = false;
            lock.unlock();
            return fail(ACL_ERROR_RT_REPORT_TIMEOUT, "no callback report arrived within %d ms", timeout_ms);
        }
        waiting_ = false;
    }
    batch_.swap(queue_);
    processing_ = true;
    lock.unlock();
    run(batch_);
    batch_.clear();
    lock.lock();
    processing_ = false;
    return 0;
}

void ReportGroup::run(std::vector<Report> &batch) {
    if (settings().shuffle_reports.load(std::memory_order_relaxed)) {
        shuffle_streams(batch);
    }
    for (const Report &report : batch) {
        if (device.fault_seen.load(std::memory_order_acquire) != 0) {
            return;
        }
        {
            CallbackScope scope;
            report.function(report.user_data);
        }
        if (report.block_ticket != 0) {
            Lock lock(device.mutex);
            if (Stream *stream = stream_table().find(report.stream)) {
                device.release_block(*stream, report.block_ticket);
            }
        }
    }
}

aclError subscribe_report(uint64_t thread, Stream &stream) {
    Subscriptions &all = subscriptions();
    std::lock_guard<std::mutex> lock(all.mutex);
    if (stream.group != nullptr) {
        return fail(
            ACL_ERROR_RT_STREAM_SUBSCRIBE, "stream %d is subscribed already, by %s", stream.id,
            stream.group_is_hidden ? "aclrtLaunchHostFunc, for life" : "a thread; unsubscribe it first");
    }
    std::shared_ptr<ReportGroup> &group = all.by_thread[thread];
    if (group == nullptr) {
        if (all.by_thread.size() > max_groups) {
            all.by_thread.erase(thread);
            return fail(ACL_ERROR_RT_INTERNAL_ERROR,
                        "%zu threads are subscribed, which is the most there can be", max_groups);
        }
        group = std::make_shared<ReportGroup>(thread, *stream.device);
    } else if (&group->device != stream.device) {
        return fail(ACL_ERROR_RT_THREAD_SUBSCRIBE,
                    "thread %llu serves device %d; a thread serves streams of one device only, use another "
                    "thread for "
                    "device %d",
                    static_cast<unsigned long long>(thread), group->device.id, stream.device->id);
    }
    if (!attach(stream, group, false)) {
        if (group->streams == 0) {
            all.by_thread.erase(thread);
        }
        return fail_closing(stream);
    }
    ++group->streams;
    return 0;
}

aclError unsubscribe_report(uint64_t thread, Stream &stream) {
    Subscriptions &all = subscriptions();
    std::lock_guard<std::mutex> lock(all.mutex);
    if (stream.group == nullptr || stream.group_is_hidden) {
        return fail(ACL_ERROR_RT_STREAM_SUBSCRIBE, "stream %d is not subscribed by a thread", stream.id);
    }
    if (stream.group->thread != thread) {
        return fail(ACL_ERROR_RT_THREAD_SUBSCRIBE, "stream %d is subscribed by thread %llu, not by %llu",
                    stream.id, static_cast<unsigned long long>(stream.group->thread),
                    static_cast<unsigned long long>(thread));
    }
    {
        Lock device_lock(stream.device->mutex);
        if (has_block_callbacks(stream)) {
            return fail(
                ACL_ERROR_RT_INTERNAL_ERROR,
                "stream %d still has BLOCK callbacks pending; on a device unsubscribing now deadlocks. "
                "Synchronise the stream first",
                stream.id);
        }
    }
    detach(stream);
    return 0;
}

aclError process_report(int32_t timeout_ms) {
    std::shared_ptr<ReportGroup> group;
    {
        std::lock_guard<std::mutex> lock(subscriptions().mutex);
        const auto found = subscriptions().by_thread.find(thread_key());
        if (found != subscriptions().by_thread.end()) {
            group = found->second;
        }
    }
    if (group == nullptr) {
        return fail(ACL_ERROR_RT_THREAD_SUBSCRIBE,
                    "thread %llu is not subscribed to any stream; call aclrtSubscribeReport before "
                    "aclrtProcessReport",
                    static_cast<unsigned long long>(thread_key()));
    }
    if (context_table().find(thread_state().current_context) == nullptr &&
        !primary_context_active(group->device.id)) {
        return fail(
            ACL_ERROR_RT_CONTEXT_NULL,
            "device %d is not set and this thread has no current context; call aclrtSetCurrentContext "
            "in the report thread",
            group->device.id);
    }
    return group->process(timeout_ms);
}

aclError subscribe_host_functions(Stream &stream) {
    Subscriptions &all = subscriptions();
    std::lock_guard<std::mutex> lock(all.mutex);
    if (stream.group_is_hidden) {
        return 0;
    }
    if (stream.group != nullptr) {
        return fail(ACL_ERROR_RT_STREAM_SUBSCRIBE,
                    "stream %d is subscribed by a thread; host functions need a stream of their own",
                    stream.id);
    }
    Context &context = *stream.context;
    if (context.host_closed) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "the context of stream %d is being destroyed", stream.id);
    }
    if (context.host_group == nullptr) {
        context.host_group = std::make_shared<ReportGroup>(0, *stream.device);
        all.hidden[context.id] = context.host_group;
        context.host_thread = std::thread(serve_host_functions, context.host_group);
    }
    return attach(stream, context.host_group, true) ? 0 : fail_closing(stream);
}

void close_host_functions(Context &context) {
    std::shared_ptr<ReportGroup> group;
    {
        std::lock_guard<std::mutex> lock(subscriptions().mutex);
        context.host_closed = true;
        group.swap(context.host_group);
        subscriptions().hidden.erase(context.id);
    }
    if (group == nullptr) {
        return;
    }
    group->close();
    if (context.host_thread.get_id() == std::this_thread::get_id()) {
        context.host_thread.detach();  // a host function destroys its own context
    } else {
        context.host_thread.join();
    }
}

void drop_subscription(Stream &stream) {
    std::lock_guard<std::mutex> lock(subscriptions().mutex);
    detach(stream);
}

void wake_report_groups(const Device &device) {
    std::lock_guard<std::mutex> lock(subscriptions().mutex);
    for (const auto *groups : {&subscriptions().by_thread, &subscriptions().hidden}) {
        for (const auto &group : *groups) {
            if (&group.second->device == &device) {
                group.second->wake();
            }
        }
    }
}

}  // namespace aclsim
