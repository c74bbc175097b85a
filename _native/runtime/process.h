// SPDX-License-Identifier: Apache-2.0
// What concerns the whole process: fork, exit, and the devices that are open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace aioascend {

class Device;
struct Library;
struct DeviceException;

// True in a child made by fork after the runtime was used: no ACL call may be made here.
bool forked();
// Registers the fork handler; idempotent.
void watch_process();
// Stops all threads of the runtime, so that nothing of it runs while the interpreter and the libraries go away.
void shut_down();
bool shutting_down();

void register_device(Device *device);
void unregister_device(Device *device);
struct OpenDevices {
    size_t devices = 0, streams = 0;
};
OpenDevices count_open_devices();
// A device may be open more than once: one that was left with work in flight is opened again before it has closed.
struct Openings {
    size_t in_use = 0;
    size_t left = 0;  // closed, and left to whoever resets the device
};
Openings openings_of(const Library &library, int32_t index);
void take_devices_away(const Library &library, int32_t index);  // before a reset by force, all of them
void forget_what_was_left(const Library &library, int32_t index);  // after it
// Held while a device is opened, given back or reset, which it must not be for somebody else meanwhile.
std::mutex &primary_context_mutex(int32_t index);
// The open devices with this index: exceptions name no library.
void note_exception(uint32_t device_index, const DeviceException &exception) noexcept;

uint32_t kernel_thread_id();  // of the calling thread

int64_t monotonic_ns();

}  // namespace aioascend
