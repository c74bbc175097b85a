// SPDX-License-Identifier: Apache-2.0
// Model descriptions: TOML or JSON files that stand for a model. docs/simulator/model-description.md is their
// manual.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/value.h"
#include "model/engine.h"

namespace aclsim {

enum class GearKind { None, Batch, Hw, Dims };

// The sizes a model with gears was built for. A gear lists the values of the open dimensions: {batch},
// {height, width}, or all of them in order of inputs and dimensions.
struct Gears {
    GearKind kind = GearKind::None;
    std::vector<std::vector<int64_t>> values;
};

enum class FillRule { Zeros, Copy, Sum, Index, Constant };

struct DescribedOutput {
    engine::Port port;
    FillRule fill = FillRule::Zeros;
    size_t from = 0;   // input that Copy and Sum read and that open dimensions are taken from
    double value = 0;  // Constant
};

struct Description {
    std::string source;  // for messages
    std::string name;
    double latency_us = 0;           // 0: the device profile's latency for the name
    double latency_us_per_item = 0;  // times the first dimension of the first input
    Gears gears;

    // A wrapper names an ONNX file and may set shapes of its inputs; otherwise inputs and outputs are listed.
    std::string onnx;  // absolute, or relative to the working directory
    std::vector<std::pair<std::string, Shape>> shapes;
    std::vector<engine::Port> inputs;
    std::vector<DescribedOutput> outputs;
    size_t weight_bytes = 0;  // device memory; a wrapper takes the size of the ONNX file
};

// `directory` is what a relative `onnx` is relative to; without it, a relative one is refused. Throws
// config::Error.
Description read_description(const config::Value &value, const std::string &source,
                             const std::optional<std::string> &directory, const std::string &default_name);

// The model that the listed inputs, outputs and fill rules make.
std::unique_ptr<engine::Model> make_described_model(const Description &description);

}  // namespace aclsim
