// SPDX-License-Identifier: Apache-2.0
// The end of a process, and its children, with work in flight.
#include "child.h"
#include "process.h"
#include "world.h"

using namespace native;
using child::need;

namespace {

constexpr size_t block = 4096;

void expect(bool fine, int status) {
    if (!fine) {
        _exit(status);
    }
}

// A world with a held stream that has `count` operations in flight.
struct Busy {
    explicit Busy(int count) : stream(world.stream()), memory(world.memory(block)) {
        need(aclsimHoldStream(stream->handle()));
        for (int i = 0; i < count; ++i) {
            ops.push_back(world.submit(stream, memset_of(memory, block, i), i % 3 == 0));
        }
    }
    World world;
    std::shared_ptr<Stream> stream;
    Place memory;
    std::vector<Op> ops;
};
Busy *busy = nullptr;  // left behind when its process exits

// Threads are stopped whatever is in flight, and whoever waits for a stream or for the device is let go.
void shut_down_with_work_in_flight() {
    busy = new Busy(2000);
    std::vector<std::thread> waiting;
    waiting.emplace_back([] { busy->stream->destroy(); });
    waiting.emplace_back([] { need(busy->world.device().close()); });
    waiting.emplace_back([] {
        while (busy->world.submit(busy->stream, join())->status == kSubmitted) {
            std::this_thread::yield();
        }
    });
    while (!busy->world.device().closed() || busy->world.submit(busy->stream, memset_of({}, 0, 0))->status == 0) {
        std::this_thread::yield();
    }
    std::thread other(shut_down);  // from two threads at once
    shut_down();
    other.join();
    expect(shutting_down(), 1);
    waiting[0].join();
    waiting[1].join();
    std::exit(waiting[2].joinable() ? 0 : 2);
}

// Many shut down while threads are about to wait: none of them may be missed.
void shut_down_while_threads_begin_to_wait() {
    busy = new Busy(10);
    std::vector<std::thread> waiting;
    std::vector<std::shared_ptr<Stream>> streams = busy->world.streams(8);
    for (const auto &stream : streams) {
        need(aclsimHoldStream(stream->handle()));
        busy->world.submit(stream, join());
    }
    std::atomic<int> ready{0};
    for (const auto &stream : streams) {
        waiting.emplace_back([&ready, stream] {
            ready.fetch_add(1);
            stream->destroy();
        });
    }
    while (ready != 8) {
        std::this_thread::yield();
    }
    shut_down();
    for (std::thread &thread : waiting) {
        thread.join();
    }
    std::exit(0);
}

// In a forked child nothing reaches the library, and nothing blocks.
void fork_with_work_in_flight() {
    busy = new Busy(100);
    const uint64_t calls = aclsimCalls("aclrtFree");
    const pid_t process = fork();
    if (process == 0) {
        alarm(30);
        Stream &stream = *busy->stream;
        Device &device = busy->world.device();
        Ticket ticket;
        aclrtEvent event = nullptr;
        size_t free = 0, total = 0;
        expect(forked(), 1);
        expect(stream.submit(ticket, memset_of(busy->memory, block, 1)) == kForked, 2);
        expect(stream.arm(busy->ops[0]->ticket) == kForked, 3);
        expect(stream.destroy() == 0, 4);
        stream.destroy_when_drained();
        expect(device.create_event(false, event) != 0, 5);
        expect(device.memory_info(free, total) != 0, 6);
        expect(!device.is_pinned(&ticket, sizeof ticket), 7);
        device.device_memory().release(busy->memory.memory);
        device.device_memory().quarantine(busy->memory.memory);
        expect(device.close() == 0, 8);
        shut_down();
        expect(!shutting_down(), 9);
        expect(aclsimCalls("aclrtFree") == calls, 10);
        _exit(0);
    }
    int status = 0;
    need(waitpid(process, &status, 0) == process ? 0 : 1);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, WIFEXITED(status) ? WEXITSTATUS(status) : 97);
    need(aclsimReleaseStream(busy->stream->handle()));  // the parent goes on as if nothing had been
    busy->world.close();
    expect(busy->world.ledger().count(Outcome::Ok) == 100, 11);
    std::exit(0);
}

// A process that just ends: nothing is written, nothing hangs.
void exit_with_work_in_flight() {
    busy = new Busy(2000);
    shut_down();
    std::exit(0);
}

const bool ran_body = child::run_body({{"shut_down_with_work_in_flight", shut_down_with_work_in_flight},
                                       {"shut_down_while_threads_begin_to_wait", shut_down_while_threads_begin_to_wait},
                                       {"fork_with_work_in_flight", fork_with_work_in_flight},
                                       {"exit_with_work_in_flight", exit_with_work_in_flight}});

void check_quiet(const char *body) {
    std::string errors;
    CHECK_EQ(child::run_self(body, &errors), 0);
    CHECK_EQ(errors, std::string());
}

}  // namespace

TEST(a_forked_child_is_refused) { check_quiet("fork_with_work_in_flight"); }
TEST(shutting_down_lets_everybody_go) { check_quiet("shut_down_with_work_in_flight"); }
TEST(an_exit_with_work_in_flight_is_quiet) { check_quiet("exit_with_work_in_flight"); }
TEST(nobody_who_begins_to_wait_is_missed) {
    for (int round = 0; round < scaled(3); ++round) {
        check_quiet("shut_down_while_threads_begin_to_wait");
    }
}
