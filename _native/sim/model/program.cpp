// SPDX-License-Identifier: Apache-2.0
#include "model/program.h"

#include <algorithm>
#include <sched.h>

#include "core/task.h"
#include "model/model_error.h"

namespace aclsim {

const char *const gear_input_name = "ascend_mbatch_shape_data";

namespace {

constexpr size_t longest_name = ACL_MAX_TENSOR_NAME_LEN - 1;  // without the terminating zero

size_t processors() {
    cpu_set_t set;
    if (::sched_getaffinity(0, sizeof(set), &set) != 0) {
        return 1;
    }
    return std::max(1, CPU_COUNT(&set));
}

[[noreturn]] void reject(const std::string &label, const std::string &problem) {
    throw ModelError(ACL_ERROR_INVALID_FILE, label + ": " + problem);
}

std::unique_ptr<engine::Model> read_model(const ModelSource &source) {
    if (source.description && source.description->onnx.empty()) {
        return make_described_model(*source.description);
    }
    return engine::read_onnx(source.onnx_path, source.onnx_content, source.label);
}

std::vector<Shape> input_shapes(const engine::Model &model) {
    std::vector<Shape> out;
    for (const engine::Port &port : model.inputs()) {
        out.push_back(port.shape);
    }
    return out;
}

void apply_shapes(engine::Model &model, const std::vector<std::pair<std::string, Shape>> &shapes,
                  const std::string &label) {
    std::vector<Shape> wanted = input_shapes(model);
    for (const auto &[name, shape] : shapes) {
        std::string known;
        bool found = false;
        for (size_t i = 0; i < wanted.size() && !found; ++i) {
            const engine::Port &port = model.inputs()[i];
            known += (known.empty() ? "'" : ", '") + port.name + "'";
            if (port.name != name) {
                continue;
            }
            found = true;
            if (port.shape.size() != shape.size()) {
                reject(label, "shapes." + name + ": " + to_text(shape) + " does not fit the model's " +
                                  to_text(port.shape));
            }
            wanted[i] = shape;
        }
        if (!found) {
            reject(label, "shapes." + name + ": the model has no such input; inputs: " + known);
        }
    }
    if (!shapes.empty()) {
        model.reshape(wanted);
    }
}

struct OpenDimension {
    size_t input, dimension;
};

std::vector<OpenDimension> open_dimensions(const std::vector<Shape> &shapes) {
    std::vector<OpenDimension> out;
    for (size_t i = 0; i < shapes.size(); ++i) {
        for (size_t d = 0; d < shapes[i].size(); ++d) {
            if (shapes[i][d] < 0) {
                out.push_back({i, d});
            }
        }
    }
    return out;
}

// The open dimensions of a model with gears are exactly those that its kind of gear decides.
void check_gears(const engine::Model &model, const Gears &gears, const std::string &label) {
    std::vector<OpenDimension> open = open_dimensions(input_shapes(model));
    std::string shapes;
    size_t dimensions = 0;
    for (const engine::Port &port : model.inputs()) {
        dimensions += port.shape.size();
        shapes += (shapes.empty() ? "" : ", ") + port.name + " = " + to_text(port.shape);
    }
    const std::string way_out = "; fix the others by `shapes`. Inputs are " + shapes;
    switch (gears.kind) {
        case GearKind::None: return;
        case GearKind::Batch:
            if (open.empty() ||
                std::any_of(open.begin(), open.end(), [](OpenDimension d) { return d.dimension != 0; })) {
                reject(label,
                       "dynamic_batch needs inputs whose first dimension is open, and no other" + way_out);
            }
            return;
        case GearKind::Hw:
            if (open.size() != 2 || open[0].input != open[1].input ||
                open[1].dimension != open[0].dimension + 1 ||
                model.inputs()[open[0].input].shape.size() != 4 || open[0].dimension == 0) {
                reject(label,
                       "dynamic_hw needs one input of four dimensions whose height and width are open "
                       "(NCHW or NHWC), and no other open dimension" +
                           way_out);
            }
            return;
        case GearKind::Dims:
            if (dimensions > ACL_MAX_DIM_CNT) {
                reject(label, "dynamic_dims: the inputs have " + std::to_string(dimensions) +
                                  " dimensions in all; at most " + std::to_string(ACL_MAX_DIM_CNT) +
                                  " can be set together");
            }
            if (open.empty() || open.size() != gears.values[0].size()) {
                reject(label, "dynamic_dims gives " + std::to_string(gears.values[0].size()) +
                                  " sizes per gear for " + std::to_string(open.size()) + " open dimensions" +
                                  way_out);
            }
            return;
    }
}

std::vector<Shape> shapes_in_gear(std::vector<Shape> shapes, GearKind kind,
                                  const std::vector<int64_t> &gear) {
    size_t next = 0;
    for (const OpenDimension &open : open_dimensions(shapes)) {
        shapes[open.input][open.dimension] = kind == GearKind::Batch ? gear[0] : gear[next++];
    }
    return shapes;
}

std::vector<GearShapes> resolve_gears(engine::Model &model, const Gears &gears) {
    std::vector<GearShapes> out;
    std::vector<Shape> open = input_shapes(model);
    for (const std::vector<int64_t> &gear : gears.values) {
        GearShapes shapes{gear, shapes_in_gear(open, gears.kind, gear), {}};
        model.reshape(shapes.inputs);
        for (const engine::Port &port : model.outputs()) {
            shapes.outputs.push_back(port.shape);
        }
        out.push_back(std::move(shapes));
    }
    if (!out.empty()) {
        model.reshape(open);
    }
    return out;
}

aclFormat format_of(const engine::Port &port) {
    if (port.shape.size() != 4) {
        return ACL_FORMAT_ND;
    }
    bool nhwc = port.shape[1] < 0 && port.shape[2] < 0 && port.shape[3] >= 0;
    return nhwc ? ACL_FORMAT_NHWC : ACL_FORMAT_NCHW;
}

Tensor describe(const engine::Port &port, const std::string &role, size_t index, const std::string &label,
                const std::vector<GearShapes> &gears, std::vector<Shape> GearShapes::*side) {
    Tensor out;
    out.name = port.name.size() <= longest_name ? port.name : "acl_" + role + "_" + std::to_string(index);
    out.type = port.type;
    out.format = format_of(port);
    out.shape = out.largest = port.shape;
    auto bytes_in = [&](const Shape &shape) {
        const auto bytes = byte_size(shape, port.type);
        if (is_static(shape) && !bytes) {
            reject(label,
                   "'" + port.name + "' of shape " + to_text(shape) + " is larger than memory can be");
        }
        return bytes.value_or(0);
    };
    out.bytes = bytes_in(port.shape);
    for (const GearShapes &gear : gears) {
        const Shape &shape = (gear.*side)[index];
        const size_t bytes = bytes_in(shape);
        if (bytes >= out.bytes) {
            out.bytes = bytes;
            out.largest = shape;
        }
    }
    return out;
}

Tensor gear_input(size_t length) {
    Tensor out;
    out.name = gear_input_name;
    out.type = ACL_INT64;
    out.shape = out.largest = {static_cast<int64_t>(length)};
    out.bytes = length * sizeof(int64_t);
    return out;
}

size_t find_largest(const std::vector<GearShapes> &gears) {
    auto volume = [](const GearShapes &gear) {
        double elements = 0;
        for (const Shape &shape : gear.inputs) {
            elements += static_cast<double>(element_count(shape).value_or(0));
        }
        return elements;
    };
    auto largest =
        std::max_element(gears.begin(), gears.end(),
                         [&](const GearShapes &a, const GearShapes &b) { return volume(a) < volume(b); });
    return static_cast<size_t>(largest - gears.begin());
}

Signature make_signature(const ModelSource &source, engine::Model &model) {
    Signature out;
    out.name = source.name;
    out.label = source.label;
    out.computes = !source.description || !source.description->onnx.empty();
    Gears gears;
    if (source.description) {
        apply_shapes(model, source.description->shapes, source.label);
        gears = source.description->gears;
        out.latency_us = source.description->latency_us;
        out.latency_us_per_item = source.description->latency_us_per_item;
    }
    check_gears(model, gears, source.label);
    out.gear_kind = gears.kind;
    out.gears = resolve_gears(model, gears);
    for (size_t i = 0; i < model.inputs().size(); ++i) {
        out.inputs.push_back(
            describe(model.inputs()[i], "input", i, source.label, out.gears, &GearShapes::inputs));
    }
    for (size_t i = 0; i < model.outputs().size(); ++i) {
        out.outputs.push_back(
            describe(model.outputs()[i], "output", i, source.label, out.gears, &GearShapes::outputs));
    }
    if (out.has_gears()) {
        out.largest_gear = find_largest(out.gears);
        out.inputs.push_back(gear_input(out.gear_length()));
    }
    out.weight_bytes = out.computes ? source.onnx_bytes : source.description->weight_bytes;
    for (const std::vector<Tensor> *side : {&out.inputs, &out.outputs}) {
        for (const Tensor &tensor : *side) {
            out.work_bytes += (tensor.bytes + 63) / 64 * 64;
        }
    }
    return out;
}

// Whether an input is a number that decides what is computed, such as a sampling rate. An execution with
// another value would then prepare another computation, and OpenVINO 2025.1 even keeps to that one for the
// same shapes.
bool steered_by_numbers(const Signature &signature) {
    return std::any_of(signature.inputs.begin(),
                       signature.inputs.begin() + static_cast<std::ptrdiff_t>(signature.engine_inputs()),
                       [](const Tensor &tensor) {
                           const bool real = tensor.type == ACL_FLOAT || tensor.type == ACL_FLOAT16 ||
                                             tensor.type == ACL_BF16 || tensor.type == ACL_DOUBLE;
                           return !real && tensor.shape.size() <= 1;
                       });
}

}  // namespace

bool Signature::is_dynamic() const {
    return !has_gears() && std::any_of(inputs.begin(), inputs.end(),
                                       [](const Tensor &tensor) { return !is_static(tensor.shape); });
}

const GearShapes *Signature::find_gear(const std::vector<int64_t> &values) const {
    for (const GearShapes &gear : gears) {
        if (gear.values == values) {
            return &gear;
        }
    }
    return nullptr;
}

Program::Program(const ModelSource &source) : model_(read_model(source)) {
    signature_ = std::make_shared<const Signature>(make_signature(source, *model_));
}

Program::Executable Program::make_executable() {
    std::lock_guard<std::mutex> lock(mutex_);
    copies_.erase(
        std::remove_if(copies_.begin(), copies_.end(), [](const auto &copy) { return copy.expired(); }),
        copies_.end());
    Executable out;
    if (copies_.size() < processors()) {
        out.compiled = model_->compile();
        copies_.push_back(out.compiled);
        out.request = out.compiled->request();
        warm_up(*out.request);
        if (signature_->computes) {
            arm_exit_guard();  // after the engine has made what it will destroy on exit
        }
        return out;
    }
    auto least_used = std::min_element(copies_.begin(), copies_.end(), [](const auto &a, const auto &b) {
        return a.use_count() < b.use_count();
    });
    out.compiled = least_used->lock();
    if (!out.compiled) {  // its last id was unloaded this moment
        out.compiled = model_->compile();
    }
    out.request = out.compiled->request();
    return out;
}

// A shape's first execution prepares kernels, which takes many times longer than the ones after it. Fill rules have none.
void Program::warm_up(engine::Request &request) const {
    if (!signature_->computes || signature_->is_dynamic() || steered_by_numbers(*signature_)) {
        return;
    }
    std::vector<GearShapes> shapes = signature_->gears;
    if (shapes.empty()) {
        shapes.emplace_back();
        for (const Tensor &tensor : signature_->inputs) {
            shapes.back().inputs.push_back(tensor.shape);
        }
    }
    for (const GearShapes &gear : shapes) {
        std::vector<std::vector<unsigned char>> zeros;
        std::vector<engine::Input> inputs;
        for (size_t i = 0; i < gear.inputs.size(); ++i) {
            zeros.emplace_back(byte_size(gear.inputs[i], signature_->inputs[i].type).value_or(0));
            inputs.push_back({zeros.back().data(), gear.inputs[i]});
        }
        std::vector<engine::Output> outputs(signature_->outputs.size());
        try {
            request.run(inputs, outputs);
        } catch (const ModelError &) {
            // Zeros may be no valid input; an execution that fails for another reason will say so itself.
        }
    }
}

}  // namespace aclsim
