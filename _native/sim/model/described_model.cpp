// SPDX-License-Identifier: Apache-2.0
// Models that exist only as a description: outputs follow from fill rules instead of weights.
#include <algorithm>
#include <cstring>

#include "model/description.h"
#include "model/model_error.h"

namespace aclsim {
namespace {

using engine::Input;
using engine::Output;
using engine::Port;

// Rules work item by item when input and output have the same first dimension, so that an item's result
// depends on nothing else in its batch. Otherwise the whole tensor is one item.
struct Items {
    size_t count = 1, in = 0, out = 0;

    Items(const Shape &input, const Shape &output) {
        in = *element_count(input);
        out = *element_count(output);
        if (input.empty() || output.empty() || input[0] != output[0] || input[0] <= 0) {
            return;
        }
        count = static_cast<size_t>(input[0]);
        in /= count;
        out /= count;
    }
};

void fill_copy(const Port &from, const void *source, const Port &to, void *target, const Items &items) {
    const size_t size = element_size(to.type);
    for (size_t item = 0; item < items.count && items.in > 0; ++item) {
        for (size_t done = 0; done < items.out;) {
            const size_t count = std::min(items.in, items.out - done);
            const size_t read = item * items.in, write = item * items.out + done;
            if (from.type == to.type) {
                std::memcpy(static_cast<char *>(target) + write * size,
                            static_cast<const char *>(source) + read * size, count * size);
            }
            for (size_t i = 0; i < count && from.type != to.type; ++i) {
                write_element(to.type, target, write + i, read_element(from.type, source, read + i));
            }
            done += count;
        }
    }
}

void fill_sum(const Port &from, const void *source, const Port &to, void *target, const Items &items) {
    for (size_t item = 0; item < items.count; ++item) {
        double sum = 0;
        for (size_t i = 0; i < items.in; ++i) {
            sum += read_element(from.type, source, item * items.in + i);
        }
        for (size_t i = 0; i < items.out; ++i) {
            write_element(to.type, target, item * items.out + i, sum);
        }
    }
}

class DescribedRequest : public engine::Request {
public:
    explicit DescribedRequest(std::shared_ptr<const Description> description)
        : model_(std::move(description)) {}

    void run(const std::vector<Input> &inputs, std::vector<Output> &outputs) override {
        for (size_t i = 0; i < outputs.size(); ++i) {
            fill(model_->outputs[i], inputs, outputs[i]);
        }
    }

private:
    void fill(const DescribedOutput &rule, const std::vector<Input> &inputs, Output &output) {
        const Input &from = inputs[rule.from];
        const Port &source = model_->inputs[rule.from], &port = rule.port;
        output.shape = port.shape;
        for (size_t i = 0; i < output.shape.size(); ++i) {
            if (output.shape[i] < 0) {
                output.shape[i] = from.shape[i];
            }
        }
        output.bytes = byte_size(output.shape, port.type).value_or(SIZE_MAX);
        if (output.bytes == SIZE_MAX || (output.data && output.capacity < output.bytes)) {
            throw ModelError(ACL_ERROR_RT_MODEL_EXECUTE,
                             model_->source + ": output '" + port.name + "' came out as " +
                                 to_text(output.shape) + " " + type_name(port.type) +
                                 ", which does not fit into its buffer of " +
                                 std::to_string(output.capacity) + " bytes; give a larger one");
        }
        if (!output.data) {
            output.owned.resize(output.bytes);
        }
        void *target = output.data ? output.data : output.owned.data();
        Items items(from.shape, output.shape);
        size_t elements = items.count * items.out;
        switch (rule.fill) {
            case FillRule::Zeros: std::memset(target, 0, output.bytes); break;
            case FillRule::Copy: fill_copy(source, from.data, port, target, items); break;
            case FillRule::Sum: fill_sum(source, from.data, port, target, items); break;
            case FillRule::Index:
                for (size_t i = 0; i < elements; ++i) {
                    write_element(port.type, target, i, static_cast<double>(i));
                }
                break;
            case FillRule::Constant:
                for (size_t i = 0; i < elements; ++i) {
                    write_element(port.type, target, i, rule.value);
                }
                break;
        }
    }

    std::shared_ptr<const Description> model_;
};

class DescribedCompiled : public engine::Compiled {
public:
    explicit DescribedCompiled(std::shared_ptr<const Description> description)
        : model_(std::move(description)) {}
    std::unique_ptr<engine::Request> request() override { return std::make_unique<DescribedRequest>(model_); }

private:
    std::shared_ptr<const Description> model_;
};

class DescribedModel : public engine::Model {
public:
    explicit DescribedModel(const Description &description)
        : description_(std::make_shared<const Description>(description)) {
        std::vector<Shape> shapes;
        for (const Port &port : description.inputs) {
            shapes.push_back(port.shape);
        }
        reshape(shapes);
    }

    const std::vector<Port> &inputs() const override { return inputs_; }
    const std::vector<Port> &outputs() const override { return outputs_; }

    void reshape(const std::vector<Shape> &shapes) override {
        inputs_ = description_->inputs;
        for (size_t i = 0; i < shapes.size(); ++i) {
            inputs_[i].shape = shapes[i];
        }
        outputs_.clear();
        for (const DescribedOutput &output : description_->outputs) {
            outputs_.push_back(output.port);
            for (size_t i = 0; i < output.port.shape.size(); ++i) {
                if (output.port.shape[i] < 0) {
                    outputs_.back().shape[i] = inputs_[output.from].shape[i];
                }
            }
        }
    }

    std::shared_ptr<engine::Compiled> compile() override {
        return std::make_shared<DescribedCompiled>(description_);
    }

private:
    std::shared_ptr<const Description> description_;
    std::vector<Port> inputs_, outputs_;
};

}  // namespace

std::unique_ptr<engine::Model> make_described_model(const Description &description) {
    return std::make_unique<DescribedModel>(description);
}

}  // namespace aclsim
