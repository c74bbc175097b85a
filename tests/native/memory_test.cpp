// SPDX-License-Identifier: Apache-2.0
// The memory pools: from several threads, out of memory, and past the end of the device.
#include "world.h"

using namespace native;

namespace {

// Each thread takes blocks, marks them, and gives them back; nobody else's mark may be in its own.
void churn(World &world, MemoryPool &pool, bool host, int rounds, size_t *failed) {
    std::atomic<size_t> failures{0};
    in_threads(4, [&](int thread) {
        std::minstd_rand random(static_cast<unsigned>(thread) + 1);
        std::vector<Memory *> held;
        for (int i = 0; i < rounds; ++i) {
            if (held.size() < 4 && random() % 2 == 0) {
                Memory *memory = pool.acquire(1 + random() % 200000);
                if (random() % 4 == 0) {
                    pool.release(memory);  // before it is even there
                    continue;
                }
                if (pool.wait(memory) != 0) {
                    CHECK_EQ(memory->code, 0 + ACL_ERROR_RT_MEMORY_ALLOCATION);
                    failures.fetch_add(1);
                    pool.release(memory);
                    continue;
                }
                CHECK(pool.contains(memory->base, memory->size));
                if (host) {
                    std::memset(memory->base, thread, memory->size);
                }
                held.push_back(memory);
            } else if (!held.empty()) {
                Memory *memory = held.back();
                held.pop_back();
                if (host) {
                    const char *bytes = memory->address(0);
                    CHECK_EQ(+bytes[0], thread);
                    CHECK_EQ(+bytes[memory->size - 1], thread);
                }
                pool.release(memory);
            }
        }
        for (Memory *memory : held) {
            pool.release(memory);
        }
    });
    CHECK_EQ(pool.statistics().live_blocks, size_t{0});
    CHECK_EQ(pool.statistics().live_bytes, size_t{0});
    if (failed != nullptr) {
        *failed = failures;
    }
    world.close();
    CHECK_EQ(aclsimLive("device_blocks"), 0);
    CHECK_EQ(aclsimLive("host_blocks"), 0);
}

}  // namespace

TEST(device_blocks_from_many_threads) {
    Options options;
    options.device_cache_bytes = 1 << 20;  // so that some go back to the driver
    World world(options);
    churn(world, world.device().device_memory(), false, scaled(1500), nullptr);
}

TEST(pinned_blocks_from_many_threads) {
    Options options;
    options.pinned_cache_bytes = 1 << 20;
    World world(options);
    churn(world, world.device().pinned_memory(), true, scaled(1500), nullptr);
}

TEST(when_memory_runs_out_the_cache_is_given_up_first) {
    OK(aclsimLimitMemory(0, 1 << 20));
    World world;
    size_t failed = 0;
    churn(world, world.device().device_memory(), false, scaled(1500), &failed);
    std::printf("     %zu requests found no memory\n", failed);
}

// A command waits for its memory in the host-side queue, and fails with its code when there is none.
TEST(commands_wait_for_memory) {
    World world;
    const auto streams = world.streams(2);
    MemoryPool &pool = world.device().device_memory();
    OK(aclsimLimitMemory(0, 4 << 20));
    std::vector<Op> ops;
    for (int i = 0; i < scaled(400); ++i) {
        Memory *memory = pool.acquire(300000);
        const auto &stream = streams[static_cast<size_t>(i) % 2];
        ops.push_back(world.ledger().submit(stream, memset_of({memory, 0}, 300000, i), world.loop(),
                                            [&](Operation &op) { op.keep = {{&pool, memory}}; }));
        if (ops.back()->status == kPoisoned) {
            world.device().told(ops.back()->ticket.failure());
        } else if (i % 8 == 0) {
            stream->arm(ops.back()->ticket);
        }
    }
    world.ledger().wait_all();
    for (const Op &op : ops) {
        if (op->ticket.outcome == Outcome::Failed) {
            CHECK_EQ(op->ticket.failure()->code, 0 + ACL_ERROR_RT_MEMORY_ALLOCATION);
            CHECK(!op->ticket.failure()->issued);
        }
    }
    world.close();
    CHECK_EQ(aclsimLive("device_blocks"), 0);
}

// Blocks of a device that is closed: the device's are gone with it, pinned ones stay until they are released.
TEST(blocks_outlive_the_device) {
    World world;
    MemoryPool &device = world.device().device_memory(), &pinned = world.device().pinned_memory();
    Memory *gone = device.acquire(1000), *stays = pinned.acquire(1000), *doubtful = device.acquire(1000),
           *unused = pinned.acquire(1000);
    CHECK_EQ(device.wait(gone) + pinned.wait(stays) + device.wait(doubtful) + pinned.wait(unused), 0);
    device.quarantine(doubtful);
    pinned.quarantine(unused);
    CHECK_EQ(aclsimLive("device_blocks"), 2);
    world.close();
    CHECK_EQ(aclsimLive("device_blocks"), 0);
    CHECK_EQ(aclsimLive("host_blocks"), 1);
    std::memset(stays->base, 1, stays->size);
    pinned.release(stays);
    device.release(gone);
    CHECK_EQ(aclsimLive("host_blocks"), 0);
    Memory *late = device.acquire(1000);
    CHECK_EQ(device.wait(late), 0 + ACL_ERROR_RT_CONTEXT_NULL);
    device.release(late);
}

TEST(memory_that_cannot_be_had_at_all) {
    World world;
    OK(aclsimFailCall("aclrtMallocHost", 1, ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, 2));
    MemoryPool &pinned = world.device().pinned_memory();
    Memory *memory = pinned.acquire(100);
    CHECK_EQ(pinned.wait(memory), 0 + ACL_ERROR_RT_RESOURCE_ALLOC_FAIL);
    pinned.release(memory);
    memory = pinned.acquire(100);  // not served from the failed one
    CHECK_EQ(pinned.wait(memory), 0);
    pinned.release(memory);
    world.close();
}
