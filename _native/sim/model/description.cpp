// SPDX-License-Identifier: Apache-2.0
#include "model/description.h"

#include <algorithm>

namespace aclsim {
namespace {

constexpr size_t max_gears = 100;
constexpr size_t max_dims = 128;  // what aclmdlIODims holds

const std::pair<const char *, FillRule> fill_rules[] = {
    {"zeros", FillRule::Zeros}, {"copy", FillRule::Copy},         {"sum", FillRule::Sum},
    {"index", FillRule::Index}, {"constant", FillRule::Constant},
};

Shape checked_shape(const config::Table &table, const std::string &key, Shape shape) {
    if (shape.size() > max_dims) {
        table.reject(
            key, "has " + std::to_string(shape.size()) + " dimensions; at most " + std::to_string(max_dims));
    }
    for (int64_t dim : shape) {
        if (dim < -1 || dim == 0) {
            table.reject(key, to_text(shape) + " holds " + std::to_string(dim) +
                                  "; a dimension is positive, or -1 when it is open");
        }
    }
    return shape;
}

double microseconds(const config::Table &table, const std::string &key) {
    double value = table.number(key).value_or(0);
    if (!(value >= 0 && value <= 3.6e9)) {
        table.reject(key, "must lie between 0 and 3.6e9 microseconds (an hour)");
    }
    return value;
}

engine::Port read_port(const config::Table &table) {
    engine::Port port;
    port.name = table.text("name").value_or("");
    if (port.name.empty()) {
        table.reject("name", "every input and output needs a name");
    }
    std::string type = table.text("dtype").value_or("float32");
    auto known = type_from_name(type);
    if (!known) {
        table.reject("dtype", "unknown element type '" + type + "'; known: " + type_names());
    }
    port.type = *known;
    auto shape = table.integers("shape");
    if (!shape) {
        table.reject("shape", "is missing; give the dimensions, -1 for open ones");
    }
    port.shape = checked_shape(table, "shape", *shape);
    if (is_static(port.shape) && !byte_size(port.shape, port.type)) {
        table.reject("shape", to_text(port.shape) + " is larger than memory can be");
    }
    return port;
}

size_t input_index(const config::Table &table, const std::string &key, const std::string &name,
                   const std::vector<engine::Port> &inputs) {
    std::string known;
    for (size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i].name == name) {
            return i;
        }
        known += (known.empty() ? "'" : ", '") + inputs[i].name + "'";
    }
    table.reject(key, "there is no input '" + name + "'; inputs: " + known);
}

DescribedOutput read_output(const config::Table &table, const std::vector<engine::Port> &inputs) {
    DescribedOutput out;
    out.port = read_port(table);
    std::string fill = table.text("fill").value_or("zeros");
    auto rule = std::find_if(std::begin(fill_rules), std::end(fill_rules),
                             [&](const auto &item) { return fill == item.first; });
    if (rule == std::end(fill_rules)) {
        table.reject("fill", "unknown rule '" + fill + "'; known: zeros, copy, sum, index, constant");
    }
    out.fill = rule->second;
    if (auto from = table.text("from")) {
        out.from = input_index(table, "from", *from, inputs);
    }
    auto value = table.number("value");
    if (value.has_value() != (out.fill == FillRule::Constant)) {
        table.reject("value", "belongs to fill = \"constant\", and only to it");
    }
    out.value = value.value_or(0);

    const Shape &source = inputs[out.from].shape;
    for (size_t i = 0; i < out.port.shape.size(); ++i) {
        if (out.port.shape[i] < 0 && i >= source.size()) {
            table.reject("shape", "dimension " + std::to_string(i) + " is open, but input '" +
                                      inputs[out.from].name +
                                      "' has no dimension at that place to take it from");
        }
    }
    table.finish();
    return out;
}

void require_unique_names(const config::Table &table, const std::string &key,
                          std::vector<std::string> names) {
    std::sort(names.begin(), names.end());
    auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) {
        table.reject(key, "the name '" + *twice + "' is used twice");
    }
}

Gears read_gears(const config::Table &table) {
    Gears gears;
    auto batches = table.integers("dynamic_batch");
    auto sizes = table.integer_lists("dynamic_hw");
    auto dims = table.integer_lists("dynamic_dims");
    if (batches.has_value() + sizes.has_value() + dims.has_value() > 1) {
        table.reject(batches ? "dynamic_batch" : "dynamic_hw",
                     "dynamic_batch, dynamic_hw and dynamic_dims exclude each other");
    }
    std::string key;
    if (batches) {
        key = "dynamic_batch";
        gears.kind = GearKind::Batch;
        for (int64_t batch : *batches) {
            gears.values.push_back({batch});
        }
    } else if (sizes) {
        key = "dynamic_hw";
        gears.kind = GearKind::Hw;
        gears.values = *sizes;
    } else if (dims) {
        key = "dynamic_dims";
        gears.kind = GearKind::Dims;
        gears.values = *dims;
    } else {
        return gears;
    }
    if (gears.values.empty() || gears.values.size() > max_gears) {
        table.reject(key, "needs 1 to " + std::to_string(max_gears) + " gears, has " +
                              std::to_string(gears.values.size()));
    }
    for (const auto &gear : gears.values) {
        if (gears.kind == GearKind::Hw && gear.size() != 2) {
            table.reject(key, "a gear is [height, width], not " + to_text(gear));
        }
        if (gear.size() != gears.values[0].size()) {
            table.reject(key,
                         "gears " + to_text(gears.values[0]) + " and " + to_text(gear) + " differ in length");
        }
        if (std::any_of(gear.begin(), gear.end(), [](int64_t value) { return value < 1; })) {
            table.reject(key, "gear " + to_text(gear) + " holds a size below 1");
        }
        if (std::count(gears.values.begin(), gears.values.end(), gear) > 1) {
            table.reject(key, "gear " + to_text(gear) + " is listed twice");
        }
    }
    return gears;
}

void read_wrapper(const config::Table &table, const std::optional<std::string> &directory, Description *out) {
    for (const char *key : {"inputs", "outputs"}) {
        if (table.has(key)) {
            table.reject(key, "comes from the ONNX file; leave it out beside `onnx`");
        }
    }
    if (out->onnx.empty()) {
        table.reject("onnx", "is empty; give the path of an ONNX file");
    }
    if (out->onnx[0] != '/') {
        if (!directory) {
            table.reject("onnx", "'" + out->onnx +
                                     "' is relative, which means nothing for a description in memory; "
                                     "give an absolute path");
        }
        out->onnx = *directory + "/" + out->onnx;
    }
    if (auto shapes = table.table("shapes")) {
        for (const std::string &name : shapes->keys()) {
            auto shape = shapes->integers(name);
            if (!shape) {
                shapes->reject(name, "give the dimensions, -1 for open ones");
            }
            out->shapes.emplace_back(name, checked_shape(*shapes, name, *shape));
        }
    }
}

void read_listed(const config::Table &table, Description *out) {
    for (const config::Table &input : table.tables("inputs")) {
        out->inputs.push_back(read_port(input));
        input.finish();
    }
    if (out->inputs.empty()) {
        table.reject("inputs", "a description names an `onnx` file or lists [[inputs]] and [[outputs]]");
    }
    for (const config::Table &output : table.tables("outputs")) {
        out->outputs.push_back(read_output(output, out->inputs));
    }
    if (out->outputs.empty()) {
        table.reject("outputs", "list at least one [[outputs]]");
    }
    std::vector<std::string> input_names, output_names;
    for (const engine::Port &input : out->inputs) {
        input_names.push_back(input.name);
    }
    for (const DescribedOutput &output : out->outputs) {
        output_names.push_back(output.port.name);
    }
    require_unique_names(table, "inputs", input_names);
    require_unique_names(table, "outputs", output_names);
    int64_t weights = table.integer("weight_bytes").value_or(0);
    if (weights < 0) {
        table.reject("weight_bytes", "must not be negative");
    }
    out->weight_bytes = static_cast<size_t>(weights);
}

}  // namespace

Description read_description(const config::Value &value, const std::string &source,
                             const std::optional<std::string> &directory, const std::string &default_name) {
    config::Table table(value, source);
    Description out;
    out.source = source;
    out.name = table.text("name").value_or(default_name);
    out.latency_us = microseconds(table, "latency_us");
    out.latency_us_per_item = microseconds(table, "latency_us_per_item");
    out.gears = read_gears(table);
    if (auto onnx = table.text("onnx")) {
        out.onnx = *onnx;
        read_wrapper(table, directory, &out);
    } else {
        read_listed(table, &out);
    }
    table.finish();
    return out;
}

}  // namespace aclsim
