// SPDX-License-Identifier: Apache-2.0
// Things the tests are made of; each cleans up behind itself, also when a check fails.
#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "check.h"

// Device set on this thread; forced down in the end.
class Scene {
public:
    explicit Scene(int32_t device = 0) : device_(device) { OK(aclrtSetDevice(device)); }
    ~Scene() {
        aclsimReset();
        aclrtResetDeviceForce(device_);
    }
    Scene(const Scene &) = delete;
    Scene &operator=(const Scene &) = delete;

    aclrtStream stream() {
        aclrtStream made = nullptr;
        OK(aclrtCreateStream(&made));
        return made;
    }
    aclrtContext context() {
        aclrtContext current = nullptr;
        OK(aclrtGetCurrentContext(&current));
        return current;
    }
    aclrtEvent event(uint32_t flags = ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE) {
        aclrtEvent made = nullptr;
        OK(aclrtCreateEventExWithFlag(&made, flags));
        return made;
    }

private:
    int32_t device_;
};

class DeviceBuffer {
public:
    explicit DeviceBuffer(size_t size) : size(size) { OK(aclrtMalloc(&p, size, ACL_MEM_MALLOC_HUGE_FIRST)); }
    ~DeviceBuffer() {
        if (p != nullptr) {
            aclrtFree(p);
        }
    }
    DeviceBuffer(const DeviceBuffer &) = delete;
    DeviceBuffer &operator=(const DeviceBuffer &) = delete;
    void *p = nullptr;
    size_t size;
};

class HostBuffer {
public:
    explicit HostBuffer(size_t size, int fill = 0) : size(size) {
        OK(aclrtMallocHost(&p, size));
        std::memset(p, fill, size);
    }
    ~HostBuffer() {
        if (p != nullptr) {
            aclrtFreeHost(p);
        }
    }
    HostBuffer(const HostBuffer &) = delete;
    HostBuffer &operator=(const HostBuffer &) = delete;
    unsigned char *bytes() { return static_cast<unsigned char *>(p); }
    void *p = nullptr;
    size_t size;
};

// A latch that one thread opens and others wait for.
class Gate {
public:
    void open() {
        std::lock_guard<std::mutex> lock(mutex_);
        open_ = true;
        changed_.notify_all();
    }
    void wait() {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return open_; });
    }
    bool is_open() {
        std::lock_guard<std::mutex> lock(mutex_);
        return open_;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool open_ = false;
};

// A thread in aclrtProcessReport. Subscribe its streams, then start(); ends when the last one is
// unsubscribed.
class ReportThread {
public:
    ReportThread() {
        thread_ = std::thread([this] {
            id_ = static_cast<uint64_t>(pthread_self());
            ready_.open();
            go_.wait();
            while (!stop_) {
                const int code = aclrtProcessReport(-1);
                last_code = code;
                if (code != 0) {
                    break;
                }
            }
            ended_.open();
        });
        ready_.wait();
    }
    ~ReportThread() {
        stop_ = true;
        for (aclrtStream stream : streams_) {
            aclrtStreamAbort(stream);
            aclrtUnSubscribeReport(id_, stream);
        }
        go_.open();
        thread_.join();
    }
    uint64_t id() const { return id_; }
    void subscribe(aclrtStream stream) {
        OK(aclrtSubscribeReport(id_, stream));
        streams_.push_back(stream);
    }
    void start() { go_.open(); }
    void wait_until_ended() { ended_.wait(); }
    std::atomic<int> last_code{0};

private:
    std::thread thread_;
    uint64_t id_ = 0;
    Gate ready_, go_, ended_;
    std::atomic<bool> stop_{false};
    std::vector<aclrtStream> streams_;
};

inline std::vector<aclsimRecord> timeline() {
    size_t count = 0;
    OK(aclsimTimeline(nullptr, 0, &count));
    std::vector<aclsimRecord> records(count);
    OK(aclsimTimeline(records.data(), records.size(), &count));
    records.resize(count);
    return records;
}

inline bool is_complete(aclrtStream stream) {
    aclrtStreamStatus status = ACL_STREAM_STATUS_RESERVED;
    OK(aclrtStreamQuery(stream, &status));
    return status == ACL_STREAM_STATUS_COMPLETE;
}
