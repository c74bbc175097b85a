// SPDX-License-Identifier: Apache-2.0
// Reports that never come: dropped, aborted with their stream, gone with the device. Every operation is resolved.
#include "world.h"

using namespace native;

namespace {

Options impatient() {
    Options options;
    options.report_timeout_ms = 100;
    return options;
}

constexpr size_t block = 4096;

// Thousands in flight on all streams, and threads that go on submitting, when the device is lost.
void lose(int round) {
    Options options;
    options.flight_limit = 128;
    World world(options);
    const auto streams = world.streams(4);
    const Place memory = world.memory(block);
    const int each = scaled(1500);
    std::atomic<int> submitted{0};
    OK(aclsimHoldDevice(0));
    std::thread thief([&] {
        while (submitted < 2 * each) {
            std::this_thread::yield();
        }
        OK(aclsimLoseDevice(0, ACL_ERROR_RT_LOST_HEARTBEAT));
    });
    in_threads(4, [&](int thread) {
        const auto &stream = streams[static_cast<size_t>(thread)];
        for (int i = 0; i < each; ++i) {
            const Op op = world.submit(stream, memset_of(memory, block, i), i % 3 == 0);
            // Accepted, or refused: by the library, or because it is known that the device is gone.
            CHECK(op->status >= 0 || op->status == kOutOfService);
            submitted.fetch_add(1);
        }
    });
    thief.join();
    world.ledger().wait_all();
    CHECK_EQ(world.ledger().count(Outcome::Ok), size_t{0});
    CHECK_EQ(world.ledger().count(Outcome::Failed) + world.ledger().refusals(), world.ledger().size());
    const bool back_in_time = round % 2 == 0;
    if (back_in_time) {
        OK(aclsimRestoreDevice(0));
    }
    world.close();
    OK(aclsimReleaseDevice(0));
    if (!back_in_time) {  // the reset of the close came too early for the hardware
        OK(aclsimRestoreDevice(0));
        aclrtResetDeviceForce(0);  // refused where there is nothing to reset
    }
}

}  // namespace

TEST(a_lost_device_takes_everything_in_flight) {
    for (int round = 0; round < 3; ++round) {
        lose(round);
        World world;  // works again
        const auto stream = world.stream();
        const Op op = world.submit(stream, memset_of(world.memory(block), block, 1));
        world.ledger().wait(op);
        CHECK_EQ(world.ledger().count(Outcome::Ok), size_t{1});
        world.close();
    }
}

TEST(a_lost_report_is_given_up) {
    World world(impatient());
    const auto stream = world.stream();
    const Place memory = world.memory(block);
    OK(aclsimDropCallback(0, stream->handle(), 1));
    const Op lost = world.submit(stream, memset_of(memory, block, 1));
    world.ledger().wait(lost);
    CHECK_EQ(static_cast<int>(lost->ticket.outcome), static_cast<int>(Outcome::Lost));
    CHECK(lost->ticket.unreliable);
    world.device().told(lost->ticket.failure());
    const Op fine = world.submit(stream, memset_of(memory, block, 1));
    world.ledger().wait(fine);
    CHECK_EQ(static_cast<int>(fine->ticket.outcome), static_cast<int>(Outcome::Ok));
    world.close();
}

// Reports get lost here and there while threads submit; a report that covers more makes up for one that is lost.
TEST(reports_are_lost_all_over) {
    World world(impatient());
    const auto streams = world.streams(2);
    const Place memory = world.memory(block);
    for (const auto &stream : streams) {
        for (uint64_t nth : {1, 7, 8, 9, 40}) {
            OK(aclsimDropCallback(0, stream->handle(), nth));
        }
    }
    in_threads(4, [&](int thread) {
        const auto &stream = streams[static_cast<size_t>(thread % 2)];
        for (int i = 0; i < scaled(500); ++i) {
            world.submit(stream, memset_of(memory, block, i), i % 3 == 0);
        }
    });
    world.ledger().wait_all();
    CHECK_EQ(world.ledger().count(Outcome::Ok) + world.ledger().count(Outcome::Lost), world.ledger().size());
    world.close();
}

// An abort discards what is queued, the reports with it; others wait for records that went the same way.
TEST(aborted_streams) {
    World world(impatient());
    const auto streams = world.streams(3);
    const Place memory = world.memory(block);
    std::atomic<bool> over{false};
    std::thread aborter([&] {
        OK(aclrtSetCurrentContext(world.device().context()));
        for (int i = 0; i < scaled(12); ++i) {
            OK(aclrtStreamAbort(streams[static_cast<size_t>(i) % 2]->handle()));
        }
        over = true;
    });
    in_threads(3, [&](int thread) {
        const auto &stream = streams[static_cast<size_t>(thread)];
        const auto &other = streams[static_cast<size_t>(thread + 1) % 3];
        const aclrtEvent event = world.event();
        do {
            for (int i = 0; i < 20; ++i) {
                world.submit(stream, memset_of(memory, block, i), i % 4 == 0);  // may be refused by an abort
            }
            const Op recorded = world.record(other, event);
            if (recorded->status == kSubmitted) {
                const Op last = world.wait_for(stream, event, other, recorded);
                if (last->status == kSubmitted) {
                    world.ledger().wait(last);
                }
            }
            while (const auto failure = stream->open_failure()) {
                world.device().told(failure);
            }
        } while (!over);
    });
    aborter.join();
    world.ledger().wait_all();
    world.close();
}

// A stream that foreign code made, subscribed to and works on as well.
// What an abort discards on the host has no task, and what comes next must not be taken to begin with the first of all.
TEST(an_exception_that_comes_after_an_abort) {
    Options options;
    options.flight_limit = 1;
    World world(options);
    const auto stream = world.stream();
    const Place memory = world.memory(64);
    const auto submit = [&] { return world.submit(stream, memset_of(memory, 64, 1)); };
    const Op first = submit();
    world.ledger().wait(first);
    OK(aclsimHoldStream(stream->handle()));
    const Op on_device = submit();
    const Op on_host = submit();
    CHECK(stream->abort());
    OK(aclsimReleaseStream(stream->handle()));
    world.ledger().wait(on_device);
    world.ledger().wait(on_host);
    world.device().told(on_host->ticket.failure());

    OK(aclsimHoldStream(stream->handle()));
    const Op next = submit();
    world.device().note_exception(
        {static_cast<uint32_t>(stream->id()), first->ticket.last_task, 0, ACL_ERROR_RT_AICORE_EXCEPTION});
    OK(aclsimReleaseStream(stream->handle()));
    world.ledger().wait(next);
    CHECK_EQ(static_cast<int>(next->ticket.outcome), static_cast<int>(Outcome::Dependent));  // and not Failed
    world.close();
}

TEST(a_wrapped_stream) {
    World world(impatient());
    OK(aclrtSetCurrentContext(world.device().context()));
    aclrtStream handle = nullptr;
    OK(aclrtCreateStream(&handle));
    const Place memory = world.memory(block);
    std::shared_ptr<Stream> stream;
    CHECK_EQ(world.device().wrap_stream(handle, stream), 0);
    std::thread foreigner([&] {
        OK(aclrtSetCurrentContext(world.device().context()));
        for (int i = 0; i < scaled(300); ++i) {
            OK(aclrtMemsetAsync(memory.address(), block, i, block, handle));
        }
    });
    for (int i = 0; i < scaled(300); ++i) {
        world.submit(stream, memset_of(memory, block, i), i % 3 == 0);
    }
    foreigner.join();
    world.ledger().wait_all();
    CHECK_EQ(world.ledger().count(Outcome::Ok), world.ledger().size());
    CHECK_EQ(stream->destroy(), 0);
    OK(aclrtDestroyStream(handle));  // left to whoever made it
    world.close();
}
