// SPDX-License-Identifier: Apache-2.0
// A ticket is what the runtime knows about one submitted operation. It is embedded in the Python object that stands
// for the operation, lives on its stream's list while the device has it, then on the queue of its loop's bridge.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace aioascend {

class Bridge;
class Stream;
struct Failure;
struct Memory;

enum class Kind : uint8_t { Memcpy, Memset, Execute, Record, Wait, Join };  // Join: nothing, but in order

enum class Outcome : uint8_t {
    Ok,
    Failed,     // this operation itself failed, on the device or when it was issued
    Dependent,  // it ran, or would have run, behind a failed one
    Lost,       // no report came: nobody knows
};

// What only some operations need, so that the others stay small: a hundred thousand may be in flight.
struct TicketExtra {
    std::shared_ptr<Failure> failure;
    // A device-to-host copy into pageable memory lands in a staging block and is copied on from there.
    void *copy_to = nullptr;
    const Memory *copy_from = nullptr;
    size_t copy_size = 0;
    // An event wait: where the event was recorded, so that a failure there is known here.
    std::shared_ptr<Stream> source;
    uint64_t source_seq = 0;
    bool noted = false;  // in debug mode: it is known where it was submitted
};

constexpr uint32_t kNoTask = UINT32_MAX;

struct Ticket {
    Ticket *next = nullptr;
    void *owner = nullptr;  // the Operation; never dereferenced by the runtime
    Bridge *bridge = nullptr;
    std::unique_ptr<TicketExtra> extra;
    uint64_t seq = 0;  // position in its stream, from 1
    uint32_t last_task = kNoTask;  // id of its last device task, where the library tells
    Kind kind = Kind::Memcpy;
    Outcome outcome = Outcome::Ok;
    bool on_host = false;    // waits in the host-side queue, not yet issued
    bool unreliable = false; // resolved without proof that the device is done: its buffers must not be reused
    bool finishing = false;  // retired, but the worker still copies for it
    std::atomic<bool> abandoned{false};  // cancelled: a staged copy must not reach the caller's array any more

    TicketExtra &more() {
        if (!extra) {
            extra = std::make_unique<TicketExtra>();
        }
        return *extra;
    }
    std::shared_ptr<Failure> failure() const { return extra ? extra->failure : nullptr; }
    void fail(std::shared_ptr<Failure> failure, Outcome how) {
        more().failure = std::move(failure);
        outcome = how;
    }
};

// One failure of the device, shared by every operation it reaches.
struct Failure {
    uint64_t id = 0;
    int32_t code = 0;
    int32_t device = 0;
    int32_t stream_id = -1;
    uint32_t task_id = 0;
    uint64_t seq = 0;        // of the failed operation in its stream; 0: only known to be one of a group
    Kind kind = Kind::Memcpy;
    const void *owner = nullptr;  // of its ticket; may be gone, so only to be compared
    bool issued = true;      // false: the library refused it when it was issued from the host-side queue
    bool of_device = false;  // the device is out of service, whatever the operation was
    bool told = false;       // somebody has it: an awaiter, a refused call, an exception handler; failure_mutex
};

// What an exception callback tells of a failed task.
struct DeviceException {
    uint32_t stream_id, task_id;
    uint32_t thread_id;  // the kernel's id of the thread that submitted it
    int32_t code;
};

// Copies a staged result on into the caller's array, once; nothing when the operation failed or was cancelled.
void finish_copy(Ticket &ticket);

struct TicketList {
    Ticket *head = nullptr;
    Ticket *tail = nullptr;
    size_t size = 0;

    void append(Ticket *ticket) {
        ++size;
        ticket->next = nullptr;
        (head ? tail->next : head) = ticket;
        tail = ticket;
    }
    Ticket *pop() {
        Ticket *ticket = head;
        head = ticket->next;
        ticket->next = nullptr;
        --size;
        return ticket;
    }
};

}  // namespace aioascend
