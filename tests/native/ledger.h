// SPDX-License-Identifier: Apache-2.0
// Operations as a loop's side of the runtime would have them, and the book that is kept of them: every accepted one is
// delivered once, in the order of its stream, and every refused one never.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bridge.h"
#include "check.h"
#include "device.h"
#include "execution.h"
#include "stream.h"

namespace native {

using namespace aioascend;

class Ledger;

struct Operation {
    Operation(Ledger &book, size_t n) : ledger(book), number(n) {}

    Ticket ticket;
    // The runtime's reference: let go when the ticket is delivered, so that whoever touches it again touches freed
    // memory.
    std::shared_ptr<Operation> in_flight;
    Ledger &ledger;
    const size_t number;
    const Stream *stream = nullptr;
    int status = kSubmitted;                             // what submit returned
    std::vector<std::pair<MemoryPool *, Memory *>> keep;  // given back when it is delivered, as is the run
    Execution *run = nullptr;
};
using Op = std::shared_ptr<Operation>;

class Ledger {
public:
    // Submits and writes down. `prepare` may fill in the ticket, before.
    template <class Prepare>
    Op submit(const std::shared_ptr<Stream> &stream, const Command &command, Bridge *bridge, Prepare prepare) {
        const Op op = enter(stream, bridge);
        prepare(*op);
        return accepted(op, stream->submit(op->ticket, command));
    }
    Op submit(const std::shared_ptr<Stream> &stream, const Command &command, Bridge *bridge) {
        return submit(stream, command, bridge, [](Operation &) {});
    }
    // Together with asking for a report of an earlier one.
    Op arm_and_submit(Stream &of, Operation &awaited, const std::shared_ptr<Stream> &stream, const Command &command,
                      Bridge *bridge) {
        const Op op = enter(stream, bridge);
        return accepted(op, aioascend::arm_and_submit(of, awaited.ticket, *stream, op->ticket, command));
    }

    // What a loop does with the tickets that it has drained.
    static void take(Ticket *ticket, const Bridge &from) {
        while (ticket != nullptr) {
            Ticket *next = ticket->next;
            auto *op = static_cast<Operation *>(ticket->owner);
            finish_copy(*ticket);
            op->ledger.delivered(*op, from);
            ticket = next;
        }
    }
    static void take_orphans() { take(Bridge::orphans().drain(), Bridge::orphans()); }

    void wait(const Op &op) {
        wait_until([&] { return deliveries_[op->number] != 0; });
    }
    void wait_all() {
        wait_until([&] { return open_ == 0; });
    }
    bool is_delivered(const Op &op) {
        std::lock_guard<std::mutex> lock(mutex_);
        return deliveries_[op->number] != 0;
    }

    // Once nothing can be delivered any more.
    void check() {
        std::lock_guard<std::mutex> lock(mutex_);
        for (size_t i = 0; i < deliveries_.size(); ++i) {
            if (deliveries_[i] != 1) {
                problems_.push_back("operation " + std::to_string(i) + " was delivered " +
                                    std::to_string(deliveries_[i]) + " times");
            }
        }
        if (!problems_.empty()) {
            check::failed(__FILE__, __LINE__,
                          problems_[0] + "; problems in all: " + std::to_string(problems_.size()));
        }
    }

    size_t size() {
        std::lock_guard<std::mutex> lock(mutex_);
        return deliveries_.size();
    }
    size_t count(Outcome outcome) {
        std::lock_guard<std::mutex> lock(mutex_);
        return outcomes_[static_cast<size_t>(outcome)];
    }
    size_t refusals() {
        std::lock_guard<std::mutex> lock(mutex_);
        return refusals_;
    }

private:
    // Orphans have no loop, so whoever waits collects them.
    template <class Done>
    void wait_until(Done done) {
        std::unique_lock<std::mutex> lock(mutex_);
        while (!done()) {
            lock.unlock();
            take_orphans();
            lock.lock();
            changed_.wait_for(lock, std::chrono::milliseconds(1), done);
        }
    }

    Op enter(const std::shared_ptr<Stream> &stream, Bridge *bridge) {
        std::lock_guard<std::mutex> lock(mutex_);
        auto op = std::make_shared<Operation>(*this, deliveries_.size());
        op->stream = stream.get();
        op->ticket.owner = op.get();
        op->ticket.bridge = bridge;
        op->in_flight = op;
        deliveries_.push_back(0);
        ++open_;
        return op;
    }

    Op accepted(const Op &op, int status) {
        op->status = status;
        if (status != kSubmitted) {
            std::lock_guard<std::mutex> lock(mutex_);
            ++deliveries_[op->number];  // so a delivery of it would be one too many
            ++refusals_;
            close(*op);
        }
        return op;
    }

    void delivered(Operation &op, const Bridge &from) {
        Op last;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            ++deliveries_[op.number];
            ++outcomes_[static_cast<size_t>(op.ticket.outcome)];
            uint64_t &newest = newest_[{op.stream, &from}];
            // Not orphans, which many collect; not the first of a stream, which may have an older one's address.
            if (&from != &Bridge::orphans() && op.ticket.seq != 1 && op.ticket.seq <= newest) {
                problems_.push_back("operation " + std::to_string(op.ticket.seq) + " of a stream came after " +
                                    std::to_string(newest));
            }
            newest = op.ticket.seq;
            if ((op.ticket.outcome == Outcome::Ok) != (op.ticket.failure() == nullptr)) {
                problems_.push_back("an outcome and a failure that do not go together");
            }
            last = close(op);
        }
    }

    // With mutex_ held. Returns the reference that the runtime had.
    Op close(Operation &op) {
        for (const auto &[pool, memory] : op.keep) {
            op.ticket.unreliable ? pool->quarantine(memory) : pool->release(memory);
        }
        op.keep.clear();
        if (op.run != nullptr) {
            op.run->give_back();
        }
        --open_;
        changed_.notify_all();
        return std::move(op.in_flight);
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<uint8_t> deliveries_;
    std::map<std::pair<const Stream *, const Bridge *>, uint64_t> newest_;
    std::vector<std::string> problems_;
    size_t outcomes_[4] = {};
    size_t refusals_ = 0;
    size_t open_ = 0;
};

}  // namespace native
