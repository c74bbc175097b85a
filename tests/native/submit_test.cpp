// SPDX-License-Identifier: Apache-2.0
// Submitting from several threads to several loops: each operation is resolved once, in order, and does its work.
#include "world.h"

using namespace native;

namespace {

constexpr size_t block = 4096;

// Anything that a stream takes, on its own memory.
Command any_command(std::minstd_rand &random, Place here, Place there) {
    Command command;
    switch (random() % 4) {
        case 0: command = memset_of(here, block, static_cast<int>(random() % 256)); break;
        case 1: command = copy(there, here, block, ACL_MEMCPY_DEVICE_TO_DEVICE); break;
        case 2: command = memset_of(here, 0, 1); break;  // no task at all
        default: command = join();
    }
    return random() % 8 == 0 ? queued(command) : command;
}

void crowd(World &world, int each) {
    const auto streams = world.streams(3);
    std::vector<Place> memory;
    for (size_t i = 0; i < 2 * streams.size(); ++i) {
        memory.push_back(world.memory(block));
    }
    Bridge *loops[] = {world.loop(0), world.loop(1), nullptr};
    in_threads(4, [&](int thread) {
        std::minstd_rand random(static_cast<unsigned>(thread) + 1);
        for (int i = 0; i < each; ++i) {
            const size_t which = random() % streams.size();
            const auto &stream = streams[which];
            const Command command = any_command(random, memory[2 * which], memory[2 * which + 1]);
            const Op op = world.ledger().submit(stream, command, loops[random() % 3]);
            CHECK_EQ(op->status, 0 + kSubmitted);
            if (random() % 4 == 0) {
                stream->arm(op->ticket);
            }
            if (random() % 64 == 0) {
                world.ledger().wait(op);
            }
        }
    });
    world.close();
    CHECK_EQ(world.ledger().count(Outcome::Ok), static_cast<size_t>(4 * each));
}

}  // namespace

TEST(operations_of_many_threads_are_resolved_once) {
    World world;
    crowd(world, scaled(4000));
}

TEST(a_small_flight_limit_sends_most_through_the_host_queue) {
    Options options;
    options.flight_limit = 4;
    World world(options);
    crowd(world, scaled(2000));
}

TEST(in_real_time_on_a_device_that_takes_some) {
    OK(aclsimSetProfile(-1, "atlas-a2"));
    World world;
    crowd(world, scaled(1000));
}

TEST(without_callbacks_reports_come_by_events) {
    World world({}, simulator_without({"aclrtLaunchCallback"}));
    crowd(world, scaled(1000));
}

TEST(without_ids_of_tasks_and_streams) {
    World world({}, simulator_without({"aclrtGetThreadLastTaskId", "aclrtStreamGetId"}));
    crowd(world, scaled(1000));
}

TEST(what_nobody_awaits_is_resolved_without_a_report) {
    World world;
    const auto stream = world.stream();
    const Place memory = world.memory(block);
    for (int i = 0; i < 10; ++i) {
        world.submit(stream, memset_of(memory, block, i), false);
    }
    world.ledger().wait_all();  // by the sweep
    CHECK_EQ(aclsimCallbacksLaunched(), uint64_t{0});
    world.close();
}

// Staged both ways, below and above the size from which the worker copies: the bytes arrive.
TEST(copies_arrive) {
    Options options;
    options.stage_inline_bytes = 20000;
    World world(options);
    const auto streams = world.streams(3);
    std::vector<Place> memory;
    for (int thread = 0; thread < 3; ++thread) {
        memory.push_back(world.memory(40000));
    }
    in_threads(3, [&](int thread) {
        const auto &stream = streams[static_cast<size_t>(thread)];
        const Place place = memory[static_cast<size_t>(thread)];
        MemoryPool &pinned = world.device().pinned_memory();
        std::minstd_rand random(static_cast<unsigned>(thread) + 1);
        for (int i = 0; i < scaled(150); ++i) {
            const size_t size = 1 + random() % 40000;
            std::vector<char> in(size, static_cast<char>(i)), out(size);
            Memory *there = pinned.acquire(size), *back = pinned.acquire(size);
            Command up = copy(place, {there, 0}, size, ACL_MEMCPY_HOST_TO_DEVICE);
            up.stage_from = in.data();
            up.may_block = size > options.stage_inline_bytes;
            world.ledger().submit(stream, up, world.loop(), [&](Operation &op) { op.keep = {{&pinned, there}}; });
            const Command down = copy({back, 0}, place, size, ACL_MEMCPY_DEVICE_TO_HOST);
            const Op op = world.ledger().submit(stream, down, world.loop(), [&](Operation &operation) {
                operation.keep = {{&pinned, back}};
                operation.ticket.more().copy_to = out.data();
                operation.ticket.more().copy_from = back;
                operation.ticket.more().copy_size = size;
            });
            stream->arm(op->ticket);
            world.ledger().wait(op);
            CHECK(in == out);
        }
    });
    world.close();
}

// A ticket without a loop is moved to one while its report may be coming: it is delivered there, or was already.
TEST(rebinding_races_with_the_report) {
    World world;
    const auto stream = world.stream();
    const Place memory = world.memory(block);
    int moved = 0;
    for (int i = 0; i < scaled(1000); ++i) {
        const Op op = world.ledger().submit(stream, memset_of(memory, block, i), nullptr);
        stream->arm(op->ticket);
        moved += stream->rebind(op->ticket, *world.loop());
        if (i % 16 == 0) {
            world.ledger().wait(op);
        }
    }
    OK(aclsimHoldStream(stream->handle()));
    const Op last = world.ledger().submit(stream, memset_of(memory, block, 1), nullptr);
    CHECK(stream->rebind(last->ticket, *world.loop()));
    OK(aclsimReleaseStream(stream->handle()));
    stream->arm(last->ticket);
    world.ledger().wait(last);
    CHECK(!stream->rebind(last->ticket, *world.loop(1)));
    std::printf("     %d of %d were moved in time\n", moved, scaled(1000));
    world.close();
}

// The loop goes while its operations are in flight; what is left of them is collected as orphans.
TEST(a_loop_that_closes_with_work_in_flight) {
    World world;
    const auto stream = world.stream();
    const Place memory = world.memory(block);
    for (int round = 0; round < scaled(50); ++round) {
        Bridge bridge;
        Op last;
        for (int i = 0; i < 20; ++i) {
            last = world.ledger().submit(stream, memset_of(memory, block, i), &bridge);
            stream->arm(last->ticket);
        }
        Ledger::take(bridge.close(), bridge);
        world.ledger().wait_all();
    }
    world.close();
}

// While the record is still in the host-side queue, the library would take its event for done.
TEST(a_wait_is_not_issued_before_its_record) {
    Options options;
    options.flight_limit = 1;
    World world(options);
    const auto one = world.stream(), other = world.stream();
    const Place from = world.memory(block), to = world.memory(block);
    const aclrtEvent event = world.event();
    OK(aclsimHoldStream(one->handle()));
    world.submit(one, memset_of(from, block, 7));
    const Op recorded = world.record(one, event);
    CHECK_EQ(one->queued(), size_t{1});
    world.wait_for(other, event, one, recorded);
    const Op copied = world.submit(other, copy(to, from, block, ACL_MEMCPY_DEVICE_TO_DEVICE));
    CHECK_EQ(other->queued(), size_t{2});
    OK(aclsimReleaseStream(one->handle()));
    world.ledger().wait(copied);
    unsigned char found = 0;
    CHECK_EQ(world.device().copy_now(&found, to.address(), 1, ACL_MEMCPY_DEVICE_TO_HOST), 0);
    CHECK_EQ(+found, 7);
    world.close();
}

TEST(asking_for_a_report_and_submitting_in_one_go) {
    World world;
    const auto one = world.stream(), other = world.stream();
    const Place memory = world.memory(block);
    for (int i = 0; i < scaled(1000); ++i) {
        const auto &of = i % 2 == 0 ? one : other, &to = i % 3 == 0 ? one : other;
        const Op awaited = world.submit(of, memset_of(memory, block, i), false);
        world.ledger().arm_and_submit(*of, *awaited, to, memset_of(memory, block, i), world.loop());
        world.ledger().wait(awaited);
    }
    world.close();
}
