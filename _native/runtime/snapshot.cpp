// SPDX-License-Identifier: Apache-2.0
#include "snapshot.h"

#include "device.h"
#include "execution.h"
#include "stream.h"

namespace aioascend {

std::vector<StreamSnapshot> snapshots(Device &device) {
    std::vector<StreamSnapshot> all;
    for (const auto &stream : device.streams()) {
        all.push_back(stream->snapshot());
    }
    return all;
}

StreamSnapshot Stream::snapshot() {
    StreamSnapshot out;
    out.key = reinterpret_cast<uintptr_t>(this);
    out.id = id_;
    out.foreign = foreign_;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        out.retired_seq = retired_seq_;
        out.issued_seq = issued_seq_;
        out.wanted_seq = wanted_seq_;
        explain_queue(out);
        // With the lock, or it might be destroyed meanwhile; it never blocks. Not a stream of somebody else: it may be
        // captured, which a query would spoil.
        if (in_flight_ != 0 && !destroyed_ && !foreign_ && device_.can().stream_query) {
            query(out.idle);
        }
    }
    {
        std::lock_guard<std::mutex> failures(device_.failure_mutex);
        for (const PendingWait &wait : waits_) {
            out.waits.push_back({wait.seq, wait.source_seq, reinterpret_cast<uintptr_t>(wait.source.get())});
        }
    }
    return out;
}

// With mutex_ held.
void Stream::explain_queue(StreamSnapshot &out) {
    if (queue_.empty()) {
        return;
    }
    const Queued &first = queue_.front();
    const TicketExtra *extra = first.ticket->extra.get();
    if (issuing_) {
        out.held = Held::Launch;
    } else if (in_flight_ >= device_.options().flight_limit) {
        out.held = Held::Full;
    } else if (extra && extra->source && extra->source->issued_seq() < extra->source_seq) {
        out.held = Held::Record;
        out.held_source = reinterpret_cast<uintptr_t>(extra->source.get());
        out.held_source_seq = extra->source_seq;
    } else if (first.command.on_hold()) {
        out.held = Held::Model;
    } else {
        out.held = first.command.state() == Memory::Pending ? Held::Memory : Held::Worker;
    }
}

}  // namespace aioascend
