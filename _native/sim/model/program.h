// SPDX-License-Identifier: Apache-2.0
// A model as ids of the same file share it: what it looks like from outside, and its compiled copies.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "model/description.h"
#include "model/engine.h"

namespace aclsim {

// Where a model comes from, found and read as far as needed to know it again.
struct ModelSource {
    std::string label;  // for messages
    std::string key;    // equal for equal models
    std::optional<Description> description;
    std::string onnx_path;     // a file ...
    std::string onnx_content;  // ... or its bytes
    size_t onnx_bytes = 0;
    std::string name;
};

// One input or output as a description shows it.
struct Tensor {
    std::string name;
    aclDataType type = ACL_DT_UNDEFINED;
    aclFormat format = ACL_FORMAT_ND;
    Shape shape;       // -1 for dimensions that a gear or the caller decides
    Shape largest;     // with gears: the largest of the shapes it takes in them, else like `shape`
    size_t bytes = 0;  // of `largest`; 0 when that is open
};

// One gear: the shapes of all inputs and outputs in it.
struct GearShapes {
    std::vector<int64_t> values;
    std::vector<Shape> inputs;
    std::vector<Shape> outputs;
};

struct Signature {
    std::string name;
    std::string label;
    // With gears the last input is the one that carries the gear; the engine does not see it.
    std::vector<Tensor> inputs;
    std::vector<Tensor> outputs;
    GearKind gear_kind = GearKind::None;
    std::vector<GearShapes> gears;
    size_t largest_gear = 0;  // valid until the caller sets one
    size_t weight_bytes = 0;
    size_t work_bytes = 0;
    double latency_us = 0;
    double latency_us_per_item = 0;
    bool computes = true;  // false: fill rules, whose cost is that of touching the memory

    bool has_gears() const { return gear_kind != GearKind::None; }
    size_t engine_inputs() const { return inputs.size() - (has_gears() ? 1 : 0); }
    size_t gear_length() const { return gears.empty() ? 0 : gears[0].values.size(); }
    // Shapes come with every execution, in the tensor descriptions of the input dataset.
    bool is_dynamic() const;
    const GearShapes *find_gear(const std::vector<int64_t> &values) const;
};

// Name of the input that carries the gear.
extern const char *const gear_input_name;

class Program {
public:
    explicit Program(const ModelSource &source);

    const std::shared_ptr<const Signature> &signature() const { return signature_; }

    // What one id executes with. Requests of one copy take turns in the engine, so there are as many copies
    // as ids, up to the number of processors.
    struct Executable {
        std::shared_ptr<engine::Compiled> compiled;
        std::unique_ptr<engine::Request> request;
    };
    Executable make_executable();

private:
    void warm_up(engine::Request &request) const;

    std::shared_ptr<const Signature> signature_;
    std::mutex mutex_;  // model_ and copies_
    std::unique_ptr<engine::Model> model_;
    std::vector<std::weak_ptr<engine::Compiled>> copies_;
};

}  // namespace aclsim
