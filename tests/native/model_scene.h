// SPDX-License-Identifier: Apache-2.0
// Models in tests: a description in memory, loaded on a world's device, and runs of it.
#pragma once

#include "world.h"

namespace native {

constexpr char copy_model[] =
    "name = 'copy'\n"
    "inputs = [{ name = 'x', shape = [64], dtype = 'uint8' }]\n"
    "outputs = [{ name = 'y', shape = [64], dtype = 'uint8', fill = 'copy' }]\n";

class Model {
public:
    Model(World &world, const char *text) : device_(world.device()) {
        uint32_t id = 0;
        std::string where;
        CHECK_EQ(device_.load_model(text, std::strlen(text), id), 0);
        loaded = std::make_unique<LoadedModel>(device_.api(), id);
        CHECK_EQ(device_.describe_model(*loaded, description, where), 0);
    }

    // A run on these places, as large as the description says. Null when the library has no memory for its datasets.
    Execution *run(const std::vector<Place> &inputs, const std::vector<Place> &outputs) {
        Execution *run = Execution::take(*loaded, inputs.size(), outputs.size());
        for (size_t i = 0; run != nullptr && i < inputs.size(); ++i) {
            run->inputs[i].place = inputs[i];
            run->inputs[i].size = description.inputs[i].bytes;
        }
        for (size_t i = 0; run != nullptr && i < outputs.size(); ++i) {
            run->outputs[i].place = outputs[i];
            run->outputs[i].size = description.outputs[i].bytes;
        }
        return run;
    }

    std::unique_ptr<LoadedModel> loaded;
    ModelDescription description;

private:
    Device &device_;
};

inline Op submit_run(World &world, const std::shared_ptr<Stream> &stream, Execution *run, bool by_host_queue = false) {
    const Command command = by_host_queue ? queued(run_of(run)) : run_of(run);
    return world.ledger().submit(stream, command, world.loop(), [&](Operation &op) { op.run = run; });
}

}  // namespace native
