// SPDX-License-Identifier: Apache-2.0
// Failed tasks: the right operation fails, those behind it are dependent, and nobody receives garbage as a result.
#include <algorithm>

#include "world.h"

using namespace native;

namespace {

constexpr int eager = 0, lazy = 1;

void check_outcome(World &world, const Op &op, Outcome expected) {
    world.ledger().wait(op);
    CHECK_EQ(static_cast<int>(op->ticket.outcome), static_cast<int>(expected));
}

// One fails in the middle; what was submitted before anybody was told is dependent, what comes after is fresh.
void one_fails(int delivery, bool by_host_queue) {
    OK(aclsimSetExceptionDelivery(delivery));
    World world;
    const auto stream = world.stream();
    const Place memory = world.memory(64);
    const auto submit = [&](int value) {
        const Command command = memset_of(memory, 64, value);
        return world.submit(stream, by_host_queue ? queued(command) : command);
    };
    OK(aclsimHoldStream(stream->handle()));
    OK(aclsimFailTask(0, stream->handle(), "memset", 3, ACL_ERROR_RT_AICORE_EXCEPTION));
    std::vector<Op> ops;
    for (int i = 0; i < 6; ++i) {
        ops.push_back(submit(i));
    }
    OK(aclsimReleaseStream(stream->handle()));
    for (int i = 0; i < 6; ++i) {
        check_outcome(world, ops[static_cast<size_t>(i)],
                      i < 2 ? Outcome::Ok : i == 2 ? Outcome::Failed : Outcome::Dependent);
    }
    const auto failure = ops[2]->ticket.failure();
    CHECK_EQ(failure->code, 0 + ACL_ERROR_RT_AICORE_EXCEPTION);
    CHECK_EQ(failure->seq, ops[2]->ticket.seq);
    CHECK(ops[5]->ticket.failure() == failure);

    const Op poisoned = world.ledger().submit(stream, join(), world.loop());
    CHECK_EQ(poisoned->status, 0 + kPoisoned);
    CHECK(poisoned->ticket.failure() == failure);
    world.device().told(failure);
    check_outcome(world, submit(7), Outcome::Ok);
    world.close();
}

// A failure crosses streams by events, as far as they go, and no further.
void across_streams(int delivery) {
    OK(aclsimSetExceptionDelivery(delivery));
    World world;
    const auto streams = world.streams(4);
    const Place memory = world.memory(64);
    const aclrtEvent first = world.event(), second = world.event();
    const auto work = [&](size_t which) { return world.submit(streams[which], memset_of(memory, 64, 1)); };
    for (const auto &stream : streams) {
        OK(aclsimHoldStream(stream->handle()));
    }
    OK(aclsimFailTask(0, streams[0]->handle(), "memset", 1, ACL_ERROR_RT_VECTOR_CORE_EXCEPTION));
    const Op failed = work(0);
    const Op recorded = world.record(streams[0], first);
    const Op before = work(1);
    const Op waited = world.wait_for(streams[1], first, streams[0], recorded);
    const Op behind = work(1);
    const Op again = world.record(streams[1], second);
    const Op far = world.wait_for(streams[2], second, streams[1], again);
    const Op farther = work(2);
    const Op elsewhere = work(3);
    for (auto stream = streams.rbegin(); stream != streams.rend(); ++stream) {
        OK(aclsimReleaseStream((*stream)->handle()));
    }
    check_outcome(world, failed, Outcome::Failed);
    check_outcome(world, before, Outcome::Ok);
    check_outcome(world, elsewhere, Outcome::Ok);
    for (const Op &op : {recorded, waited, behind, again, far, farther}) {
        check_outcome(world, op, Outcome::Dependent);
        CHECK(op->ticket.failure() == failed->ticket.failure());
    }
    world.device().told(failed->ticket.failure());
    for (size_t i = 0; i < streams.size(); ++i) {
        check_outcome(world, work(i), Outcome::Ok);
    }
    // An event that was recorded behind the failure is remembered: who would wait for it is told.
    const Op late = world.wait_for(streams[3], first, streams[0], recorded);
    CHECK_EQ(late->status, 0 + kBehind);
    CHECK(late->ticket.failure() == failed->ticket.failure());
    check_outcome(world, work(3), Outcome::Ok);
    world.close();
}

// What a producer knows of an operation, and when it knew. Ticks order what the threads do.
struct Fact {
    Op op;
    Place cell;  // the byte that the operation sets
    unsigned char value = 0;
    uint64_t submitted = 0;  // the tick behind its submit
};

class Ticks {
public:
    uint64_t next() { return ++now_; }
    void told(const std::shared_ptr<Failure> &failure, const std::function<void()> &tell) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            told_.emplace(failure->id, next());
        }
        tell();
    }
    uint64_t told_at(uint64_t failure) {
        std::lock_guard<std::mutex> lock(mutex_);
        const auto found = told_.find(failure);
        return found == told_.end() ? UINT64_MAX : found->second;
    }

private:
    std::atomic<uint64_t> now_{0};
    std::mutex mutex_;
    std::map<uint64_t, uint64_t> told_;  // failure -> the tick before anybody was told
};

std::vector<Fact> produce(World &world, const std::shared_ptr<Stream> &stream, Place cells, int count, unsigned seed,
                          Ticks &ticks) {
    std::minstd_rand random(seed);
    std::vector<Fact> facts;
    for (int i = 0; i < count; ++i) {
        Fact fact;
        fact.cell = {cells.memory, cells.at + static_cast<size_t>(i)};
        fact.value = static_cast<unsigned char>(1 + random() % 255);
        Command command = memset_of(fact.cell, 1, fact.value);
        command.may_block = random() % 16 == 0;
        fact.op = world.submit(stream, command, random() % 4 == 0);
        if (fact.op->status == kPoisoned) {
            const auto failure = fact.op->ticket.failure();
            ticks.told(failure, [&] { world.device().told(failure); });
            continue;
        }
        CHECK_EQ(fact.op->status, 0 + kSubmitted);
        fact.submitted = ticks.next();
        facts.push_back(fact);
    }
    return facts;
}

void check_bytes(World &world, const std::vector<Fact> &facts) {
    for (const Fact &fact : facts) {
        unsigned char found = 0;
        CHECK_EQ(world.device().copy_now(&found, fact.cell.address(), 1, ACL_MEMCPY_DEVICE_TO_HOST), 0);
        if (fact.op->ticket.outcome == Outcome::Ok) {
            CHECK_EQ(+found, +fact.value);
        } else if (fact.op->ticket.outcome == Outcome::Failed) {
            CHECK_EQ(+found, 0);  // so it was this one
        }
    }
}

// Whoever ran behind a failure and was submitted before anybody had been told is not fine.
void check_dependents(const std::vector<Fact> &facts, Ticks &ticks) {
    for (const Fact &failed : facts) {
        if (failed.op->ticket.outcome != Outcome::Failed) {
            continue;
        }
        const uint64_t told = ticks.told_at(failed.op->ticket.failure()->id);
        for (const Fact &fact : facts) {
            if (fact.op->ticket.seq > failed.op->ticket.seq && fact.submitted < told) {
                CHECK(fact.op->ticket.outcome != Outcome::Ok);
            }
        }
    }
}

// Failures all over, while several threads submit: two on a stream of their own, two on one that they share.
void failures_all_over(int delivery) {
    OK(aclsimSetExceptionDelivery(delivery));
    Options options;
    options.flight_limit = 64;
    World world(options);
    const int each = scaled(1500);
    const auto streams = world.streams(3);
    std::vector<Place> cells;
    for (int i = 0; i < 4; ++i) {
        const size_t size = static_cast<size_t>(each);
        cells.push_back(world.memory(size));
        OK(aclrtSetCurrentContext(world.device().context()));
        OK(aclrtMemset(cells.back().address(), size, 0, size));
    }
    for (const auto &stream : streams) {
        for (uint64_t nth : {10, 11, 90, 200, 400, 700}) {
            OK(aclsimFailTask(0, stream->handle(), "memset", nth, ACL_ERROR_RT_AICORE_TIMEOUT));
        }
    }
    Ticks ticks;
    std::vector<Fact> facts[4];
    in_threads(4, [&](int i) {
        const size_t index = static_cast<size_t>(i);
        facts[i] = produce(world, streams[std::min(index, size_t{2})], cells[index], each,
                           static_cast<unsigned>(i) + 1, ticks);
    });
    world.ledger().wait_all();
    facts[2].insert(facts[2].end(), facts[3].begin(), facts[3].end());
    for (const auto &of_stream : {facts[0], facts[1], facts[2]}) {
        check_bytes(world, of_stream);
        check_dependents(of_stream, ticks);
    }
    CHECK(world.ledger().count(Outcome::Failed) >= 3);
    CHECK(world.ledger().count(Outcome::Ok) > 0);
    world.close();
}

}  // namespace

TEST(one_fails_and_is_told_at_once) { one_fails(eager, false); }
TEST(one_fails_and_is_told_when_asked) { one_fails(lazy, false); }
TEST(one_fails_that_came_by_the_host_queue) { one_fails(eager, true); }
TEST(one_fails_by_the_host_queue_and_is_told_when_asked) { one_fails(lazy, true); }
TEST(a_failure_crosses_streams) { across_streams(eager); }
TEST(a_failure_crosses_streams_when_asked) { across_streams(lazy); }
TEST(failures_all_over_told_at_once) { failures_all_over(eager); }
TEST(failures_all_over_told_when_asked) { failures_all_over(lazy); }

// A wait that was refused makes nothing depend on the other stream.
TEST(a_refused_wait_leaves_no_dependency) {
    World world;
    const auto one = world.stream(), other = world.stream();
    const Place memory = world.memory(64);
    const aclrtEvent event = world.event();
    OK(aclsimHoldStream(one->handle()));
    OK(aclsimFailTask(0, one->handle(), "memset", 1, ACL_ERROR_RT_AICORE_EXCEPTION));
    const Op failed = world.submit(one, memset_of(memory, 64, 1));
    const Op recorded = world.record(one, event);
    OK(aclsimFailCall("aclrtStreamWaitEvent", 1, ACL_ERROR_RT_INTERNAL_ERROR, 1));
    CHECK_EQ(world.wait_for(other, event, one, recorded)->status, 0 + ACL_ERROR_RT_INTERNAL_ERROR);
    OK(aclsimReleaseStream(one->handle()));
    check_outcome(world, failed, Outcome::Failed);
    check_outcome(world, world.submit(other, memset_of(memory, 64, 2)), Outcome::Ok);
    world.close();
}

// Everything in flight depends on a failure whose task nobody can name.
TEST(without_task_ids_all_in_flight_are_dependent) {
    World world({}, simulator_without({"aclrtGetThreadLastTaskId"}));
    const auto stream = world.stream();
    const Place memory = world.memory(64);
    OK(aclsimHoldStream(stream->handle()));
    OK(aclsimFailTask(0, stream->handle(), "memset", 2, ACL_ERROR_RT_AICORE_EXCEPTION));
    std::vector<Op> ops;
    for (int i = 0; i < 3; ++i) {
        ops.push_back(world.submit(stream, memset_of(memory, 64, i)));
    }
    OK(aclsimReleaseStream(stream->handle()));
    for (const Op &op : ops) {
        check_outcome(world, op, Outcome::Dependent);
        CHECK_EQ(op->ticket.failure()->seq, uint64_t{0});
    }
    world.close();
}
