// SPDX-License-Identifier: Apache-2.0
// Runs of models: their datasets are reused, gears are set and launched in one step, unloading waits for nobody.
#include <algorithm>

#include "model_scene.h"

using namespace native;

namespace {

constexpr char gear_model[] =
    "name = 'gears'\n"
    "dynamic_batch = [1, 2, 8]\n"
    "inputs = [{ name = 'x', shape = [-1, 4] }]\n"
    "outputs = [{ name = 'y', shape = [-1, 4], fill = 'copy' }]\n";

constexpr char open_model[] =
    "name = 'open'\n"
    "inputs = [{ name = 'x', shape = [-1, 4] }]\n"
    "outputs = [{ name = 'y', shape = [-1, 4], fill = 'copy' }]\n";

}  // namespace

TEST(what_a_model_says_of_itself) {
    World world;
    {
        Model gears(world, gear_model), open(world, open_model);
        CHECK_EQ(gears.description.inputs.size(), size_t{2});  // the gear's own input comes with it
        CHECK_EQ(gears.description.inputs[0].name, std::string("x"));
        CHECK_EQ(gears.description.inputs[0].bytes, size_t{8 * 4 * 4});
        CHECK(gears.description.gear_kind == DynamicKind::Batch);
        CHECK(gears.description.gears == (std::vector<std::vector<uint64_t>>{{1}, {2}, {8}}));
        CHECK(open.description.gear_kind == DynamicKind::Static);
        CHECK(open.description.inputs[0].shape == (std::vector<int64_t>{-1, 4}));
        CHECK_EQ(open.description.outputs[0].bytes, size_t{0});
        CHECK_EQ(world.device().unload_model(*gears.loaded) + world.device().unload_model(*open.loaded), 0);
        CHECK_EQ(world.device().unload_model(*open.loaded), 0);  // once
    }
    world.close();
    CHECK_EQ(aclsimLive("models"), 0);
}

// A model per thread and stream; datasets go round between the loop that is done with them and the next run.
TEST(runs_from_many_threads) {
    World world;
    const auto streams = world.streams(3);
    std::vector<Place> places;
    for (int i = 0; i < 6; ++i) {
        places.push_back(world.memory(64));
    }
    {
        std::vector<std::unique_ptr<Model>> models;
        for (int i = 0; i < 3; ++i) {
            models.push_back(std::make_unique<Model>(world, copy_model));
        }
        in_threads(3, [&](int thread) {
            const auto which = static_cast<size_t>(thread);
            const auto &stream = streams[which];
            for (int i = 0; i < scaled(500); ++i) {
                world.submit(stream, memset_of(places[2 * which], 64, i), false);
                const Op op = submit_run(world, stream,
                                         models[which]->run({places[2 * which]}, {places[2 * which + 1]}),
                                         i % 8 == 0);
                stream->arm(op->ticket);
                if (i % 32 == 0) {
                    world.ledger().wait(op);
                    unsigned char found = 0;
                    CHECK_EQ(world.device().copy_now(&found, places[2 * which + 1].address(), 1,
                                                     ACL_MEMCPY_DEVICE_TO_HOST),
                             0);
                    CHECK_EQ(+found, i % 256);
                }
            }
        });
        world.ledger().wait_all();
        CHECK_EQ(world.ledger().count(Outcome::Ok), world.ledger().size());
        for (const auto &model : models) {
            CHECK_EQ(world.device().unload_model(*model->loaded), 0);
        }
    }
    world.close();
    CHECK_EQ(aclsimLive("datasets") + aclsimLive("data_buffers") + aclsimLive("models"), 0);
}

// The gear is state of the model id, but each run has its own.
TEST(gears_of_runs_that_queue_up) {
    World world;
    const auto stream = world.stream();
    {
        Model model(world, gear_model);
        const size_t bytes = model.description.inputs[0].bytes;
        const Place x = world.memory(bytes), gear = world.memory(64), y = world.memory(bytes);
        std::vector<std::pair<Op, std::vector<int64_t>>> runs;
        for (int i = 0; i < scaled(300); ++i) {
            const uint64_t batch = model.description.gears[static_cast<size_t>(i) % 3][0];
            Execution *run = model.run({x, gear}, {y});
            run->dynamic = DynamicKind::Batch;
            run->dynamic_index = 1;
            run->dynamic_values = {batch};
            const Op op = submit_run(world, stream, run, i % 5 == 0);
            stream->arm(op->ticket);
            std::vector<int64_t> shape;
            world.ledger().wait(op);
            CHECK(run->output_shape(0, shape));
            CHECK(shape == (std::vector<int64_t>{static_cast<int64_t>(batch), 4}));
        }
        CHECK_EQ(world.device().unload_model(*model.loaded), 0);
    }
    CHECK_EQ(world.ledger().count(Outcome::Ok), world.ledger().size());
    world.close();
}

// While a run that waits is coming, others hold on the host; they go on when it is over.
TEST(runs_are_held_for_one_that_waits) {
    World world;
    const auto stream = world.stream();
    const Place x = world.memory(64), y = world.memory(64);
    {
        Model model(world, copy_model);
        for (int round = 0; round < scaled(50); ++round) {
            world.device().hold_runs(*model.loaded, true);
            Execution *held = model.run({x}, {y});
            held->held = model.loaded->hold;
            const Op op = submit_run(world, stream, held);
            stream->arm(op->ticket);
            CHECK_EQ(stream->queued(), size_t{1});
            Execution *now = model.run({x}, {y});
            CHECK_EQ(world.device().execute_now(*now), 0);
            now->give_back();
            CHECK(!world.ledger().is_delivered(op));
            world.device().hold_runs(*model.loaded, false);
            world.ledger().wait(op);
        }
        CHECK_EQ(world.device().unload_model(*model.loaded), 0);
    }
    world.close();
}

TEST(an_unloaded_model_refuses_runs) {
    World world;
    const auto stream = world.stream();
    const Place x = world.memory(64), y = world.memory(64);
    {
        Model model(world, copy_model);
        OK(aclsimHoldStream(stream->handle()));
        Execution *late = model.run({x}, {y});
        const Op before = submit_run(world, stream, model.run({x}, {y}));
        CHECK_EQ(world.device().unload_model(*model.loaded), 0 + ACL_ERROR_GE_UNLOAD_MODEL);  // it is in flight
        stream->arm(before->ticket);
        OK(aclsimReleaseStream(stream->handle()));
        world.ledger().wait(before);
        CHECK_EQ(world.device().unload_model(*model.loaded), 0);
        CHECK_EQ(submit_run(world, stream, late)->status, 0 + ACL_ERROR_INVALID_MODEL_ID);
    }
    world.close();
    CHECK_EQ(aclsimLive("datasets") + aclsimLive("data_buffers") + aclsimLive("models"), 0);
}
