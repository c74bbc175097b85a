// SPDX-License-Identifier: Apache-2.0
// Each ACL call that the runtime makes fails, one at a time and for good: what was refused is rolled back, what was
// accepted is resolved once.
#include "model_scene.h"

using namespace native;

namespace {

constexpr aclError injected = ACL_ERROR_RT_INTERNAL_ERROR;
constexpr size_t block = 64;

const char *const functions[] = {
#define ACL_FUNCTION(name, optional, ret, params, names) #name,
#include "functions.inc"
#undef ACL_FUNCTION
};

// A library as it is, or an older one: other calls are made then.
const Library &new_one() { return simulator(); }
const Library &old_one() { return simulator_without({"aclrtLaunchCallback"}); }

struct Scenario {
    explicit Scenario(const Library &library) : world(impatient(), library), model(world, copy_model) {
        streams = world.streams(2);
        for (Place &place : places) {
            place = world.memory(block);
        }
    }

    static Options impatient() {
        Options options;
        options.report_timeout_ms = 50;
        return options;
    }

    // A bit of everything, on the direct way or through the host-side queue. May be refused, with the code.
    void work(bool by_host_queue) {
        MemoryPool &pinned = world.device().pinned_memory();
        const auto way = [&](const Command &command) { return by_host_queue ? queued(command) : command; };
        std::vector<Op> ops;
        ops.push_back(world.submit(streams[0], way(memset_of(places[0], block, 1)), !by_host_queue));

        Memory *stage = pinned.acquire(block), *back = pinned.acquire(block);
        Command up = copy(places[0], {stage, 0}, block, ACL_MEMCPY_HOST_TO_DEVICE);
        up.stage_from = bytes;
        ops.push_back(world.ledger().submit(streams[0], way(up), world.loop(),
                                            [&](Operation &op) { op.keep = {{&pinned, stage}}; }));
        if (Execution *run = model.run({places[0]}, {places[1]})) {
            ops.push_back(submit_run(world, streams[0], run, by_host_queue));
        }

        aclrtEvent event = nullptr;
        if (world.device().create_event(false, event) == 0) {
            ops.push_back(world.record(streams[0], event));
            if (ops.back()->status == kSubmitted) {
                ops.push_back(world.wait_for(streams[1], event, streams[0], ops.back()));
            }
        }
        ops.push_back(world.ledger().submit(
            streams[1], way(copy({back, 0}, places[1], block, ACL_MEMCPY_DEVICE_TO_HOST)), world.loop(),
            [&](Operation &op) {
                op.keep = {{&pinned, back}};
                op.ticket.more().copy_to = bytes;
                op.ticket.more().copy_from = back;
                op.ticket.more().copy_size = block;
            }));
        for (const auto &stream : streams) {  // so that nothing has to wait for the sweep
            ops.push_back(world.submit(stream, join()));
        }
        world.ledger().wait_all();
        if (event != nullptr) {
            world.device().destroy_event(event);
        }
        for (const Op &op : ops) {
            // Accepted, refused by the library, or refused because of what failed before.
            CHECK(op->status <= 0 ? op->status != kClosed && op->status != kForked : op->status == injected);
            if (const auto failure = op->ticket.failure()) {
                CHECK(failure->code == injected || failure->code == 0);  // 0: a report was lost
                world.device().told(failure);
            }
        }
    }

    aclError finish() {
        const aclError unloaded = world.device().unload_model(*model.loaded);
        model.loaded.reset();
        const aclError closed = world.finish();
        return unloaded != 0 ? unloaded : closed;
    }

    World world;
    Model model;
    std::vector<std::shared_ptr<Stream>> streams;
    Place places[2];
    char bytes[block] = {};
};

uint64_t calls_of_a_scenario(const Library &library, const char *function) {
    static auto *known = new std::map<std::pair<const Library *, std::string>, uint64_t>;
    if (known->empty() || known->begin()->first.first != &library) {
        known->clear();
        Scenario scenario(library);
        std::map<std::string, uint64_t> before;
        for (const char *name : functions) {
            before[name] = aclsimCalls(name);
        }
        scenario.work(false);
        scenario.work(true);
        CHECK_EQ(scenario.finish(), 0);
        for (const char *name : functions) {
            (*known)[{&library, name}] = aclsimCalls(name) - before[name];
        }
    }
    return (*known)[{&library, function}];
}

std::vector<int64_t> live() {
    std::vector<int64_t> counts;
    for (const char *what : {"streams", "events", "device_blocks", "tasks", "models", "datasets", "data_buffers",
                             "subscriptions", "host_blocks"}) {
        counts.push_back(aclsimLive(what));
    }
    return counts;
}

void run_with(const Library &library, const char *function, uint64_t nth, uint64_t times) {
    const std::vector<int64_t> before = live();
    Scenario scenario(library);
    OK(aclsimFailCall(function, nth, injected, times));
    scenario.work(false);
    scenario.work(true);
    if (times > 1) {  // the end is what single failures look at
        aclsimReset();
    }
    const aclError code = scenario.finish();
    CHECK(code == 0 || code == injected);
    aclsimReset();
    aclrtResetDeviceForce(0);  // where a reset failed, or a stream could not be destroyed
    const bool destroys = std::strstr(function, "Free") != nullptr || std::strstr(function, "Destroy") != nullptr;
    if (!destroys && live() != before) {
        check::failed(__FILE__, __LINE__,
                      "something is left after call " + std::to_string(nth) + " of " + function + " failed");
    }
}

void each_call_fails_once(const Library &library) {
    int runs = 0;
    for (const char *function : functions) {
        const uint64_t calls = calls_of_a_scenario(library, function);
        for (uint64_t nth = 1; nth <= std::min(calls, uint64_t(scaled(3))); ++nth) {
            run_with(library, function, nth, 1);
            ++runs;
        }
    }
    CHECK(runs > 40 || scaled(100) < 100);
    std::printf("     %d calls failed\n", runs);
}

void each_call_fails_for_good(const Library &library) {
    for (const char *function : functions) {
        if (calls_of_a_scenario(library, function) != 0) {
            run_with(library, function, 1, UINT64_MAX / 2);
        }
    }
}

}  // namespace

TEST(each_call_fails_once_) { each_call_fails_once(new_one()); }
TEST(each_call_fails_once_without_callbacks) { each_call_fails_once(old_one()); }
TEST(each_call_fails_for_good_) { each_call_fails_for_good(new_one()); }
TEST(each_call_fails_for_good_without_callbacks) { each_call_fails_for_good(old_one()); }

// Opening gives back what it has taken when a call on the way fails, and can be tried again.
TEST(opening_fails_at_each_call) {
    for (const char *function : {"aclInit", "aclrtSetDevice", "aclrtGetCurrentContext", "aclrtCreateStreamWithConfig",
                                 "aclrtSubscribeReport", "aclrtStreamGetId"}) {
        for (uint64_t nth : {1, 2}) {
            Device device(simulator(), 0, {});
            OK(aclsimFailCall(function, nth, injected, 1));
            aclError code = device.open();
            if (code == 0) {
                std::shared_ptr<Stream> stream;
                code = device.create_stream(0, 0, stream);
                if (code == 0) {
                    stream->close();
                    CHECK_EQ(stream->destroy(), 0);
                }
                CHECK_EQ(device.close(), 0);
            }
            CHECK(code == 0 || code == injected);
            aclsimReset();
            CHECK_EQ(aclsimLive("streams") + aclsimLive("subscriptions"), 0);
            int32_t active = 0;
            uint32_t flags = 0;
            OK(aclrtGetPrimaryCtxState(0, &flags, &active));
            CHECK_EQ(active, 0);
        }
    }
}
