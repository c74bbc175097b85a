// SPDX-License-Identifier: Apache-2.0
// Closing streams and devices while others still submit, and opening them again and again.
#include "world.h"

using namespace native;

namespace {

constexpr size_t block = 4096;

int threads_of_the_runtime() {
    int count = 0;
    std::FILE *names = popen("cat /proc/$PPID/task/*/comm 2>/dev/null", "r");
    CHECK(names != nullptr);
    char name[64];
    while (std::fgets(name, sizeof name, names) != nullptr) {
        count += std::strncmp(name, "aioascend-", 10) == 0;
    }
    pclose(names);
    return count;
}

}  // namespace

// Producers go on until they are refused; what was accepted before is resolved, whoever destroys the stream.
TEST(a_stream_closes_while_others_submit) {
    for (int round = 0; round < scaled(20); ++round) {
        Options options;
        options.flight_limit = round % 2 == 0 ? 512 : 4;
        World world(options);
        std::shared_ptr<Stream> stream = world.stream();
        const Place memory = world.memory(block);
        std::atomic<int> accepted{0};
        std::thread closer([&] {
            while (accepted < 60) {
                std::this_thread::yield();
            }
            if (round % 3 == 0) {
                stream->destroy_when_drained();
            } else {
                stream->close();
                CHECK_EQ(stream->destroy(), 0);
            }
        });
        in_threads(3, [&](int thread) {
            for (int i = 0;; ++i) {
                Command command = memset_of(memory, block, i);
                command.may_block = i % 16 == thread;
                const Op op = world.submit(stream, command, i % 4 == 0);
                if (op->status != kSubmitted) {
                    CHECK_EQ(op->status, 0 + kClosed);
                    return;
                }
                accepted.fetch_add(1);
            }
        });
        closer.join();
        world.ledger().wait_all();
        CHECK_EQ(world.ledger().count(Outcome::Ok), world.ledger().size() - 3);
        stream.reset();
        world.close();
        CHECK_EQ(aclsimLive("streams"), 0);
    }
}

// A closed stream takes a join until it is destroyed, which is how one waits for its end.
TEST(a_join_of_a_closed_stream) {
    World world;
    const auto stream = world.stream();
    OK(aclsimHoldStream(stream->handle()));
    const Op work = world.submit(stream, memset_of(world.memory(block), block, 1), false);
    stream->close();
    CHECK_EQ(world.ledger().submit(stream, memset_of({}, 0, 1), world.loop())->status, 0 + kClosed);
    const Op last = world.submit(stream, join());
    CHECK_EQ(last->status, 0 + kSubmitted);
    CHECK(!world.ledger().is_delivered(last));
    OK(aclsimReleaseStream(stream->handle()));
    world.ledger().wait(last);
    CHECK(world.ledger().is_delivered(work));
    CHECK_EQ(stream->destroy(), 0);
    CHECK_EQ(stream->destroy(), 0);
    CHECK_EQ(world.ledger().submit(stream, join(), world.loop())->status, 0 + kClosed);
    world.close();
}

// The device is closed while threads make streams and submit: late ones are refused, and nothing is left.
TEST(a_device_closes_while_others_make_streams) {
    for (int round = 0; round < scaled(40); ++round) {
        Ledger ledger;
        Loop loop;
        Device device(simulator(), 0, {});
        CHECK_EQ(device.open(), 0);
        std::atomic<int> made{0};
        std::thread closer([&] {
            while (made < 10) {
                std::this_thread::yield();
            }
            CHECK_EQ(device.close(), 0);
        });
        in_threads(3, [&](int) {
            while (true) {
                std::shared_ptr<Stream> stream;
                const aclError code = device.create_stream(0, 0, stream);
                if (code != 0) {
                    CHECK(device.closed());
                    return;
                }
                made.fetch_add(1);
                const Op op = ledger.submit(stream, join(), &loop.bridge);
                stream->arm(op->ticket);
                if (made % 2 == 0) {
                    stream->close();
                    CHECK_EQ(stream->destroy(), 0);
                } else {
                    stream->destroy_when_drained();
                }
            }
        });
        closer.join();
        ledger.wait_all();
        ledger.check();
        CHECK(device.ended());
        CHECK_EQ(aclsimLive("streams") + aclsimLive("subscriptions"), 0);
    }
}

// In the background, when streams are still busy.
TEST(closing_later) {
    auto ledger = std::make_unique<Ledger>();
    Loop loop;
    Device device(simulator(), 0, {});
    CHECK_EQ(device.open(), 0);
    CHECK(!device.close_later());
    CHECK(!device.closed());
    std::shared_ptr<Stream> stream;
    CHECK_EQ(device.create_stream(0, 0, stream), 0);
    OK(aclsimHoldStream(stream->handle()));
    ledger->submit(stream, join(), &loop.bridge);
    stream->destroy_when_drained();
    CHECK(device.close_later());
    OK(aclsimReleaseStream(stream->handle()));
    ledger->wait_all();
    while (!device.ended()) {
        std::this_thread::yield();
    }
    ledger->check();
    CHECK_EQ(aclsimLive("streams"), 0);
}

TEST(threads_start_and_stop_with_the_device) {
    const int before = threads_of_the_runtime();
    for (int round = 0; round < scaled(100); ++round) {
        World world;
        const auto stream = world.stream();
        for (int i = 0; i < round % 5; ++i) {
            world.submit(stream, memset_of(world.memory(block), block, i));
        }
        world.close();
    }
    CHECK_EQ(threads_of_the_runtime(), before);
}

// The same object, opened and closed again.
TEST(a_device_is_opened_again) {
    Device device(simulator(), 0, {});
    for (int round = 0; round < scaled(50); ++round) {
        Ledger ledger;
        Loop loop;
        CHECK_EQ(device.open(), 0);
        std::shared_ptr<Stream> stream;
        CHECK_EQ(device.create_stream(0, 0, stream), 0);
        const Op op = ledger.submit(stream, join(), &loop.bridge);
        stream->arm(op->ticket);
        CHECK_EQ(stream->destroy(), 0);
        ledger.wait_all();
        CHECK_EQ(device.close(), 0);
        CHECK_EQ(device.close(), 0);
        ledger.check();
    }
}

// Several devices, and one device opened several times, side by side.
TEST(devices_side_by_side) {
    in_threads(4, [](int thread) {
        for (int round = 0; round < scaled(20); ++round) {
            World world({}, simulator(), thread % 2);
            const auto stream = world.stream();
            const Place memory = world.memory(block);
            for (int i = 0; i < 50; ++i) {
                world.submit(stream, memset_of(memory, block, i), i % 4 == 0);
            }
            world.close();
        }
    });
    CHECK_EQ(aclsimLive("streams"), 0);
    CHECK_EQ(aclsimLive("device_blocks"), 0);
}
