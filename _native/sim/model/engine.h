// SPDX-License-Identifier: Apache-2.0
// What the simulator asks of something that computes models. Two implementations: OpenVINO for ONNX models
// and the fill rules of model descriptions. All of it throws ModelError; executing with 507011.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/tensor_type.h"

namespace aclsim::engine {

struct Port {
    std::string name;
    aclDataType type = ACL_DT_UNDEFINED;
    Shape shape;
};

struct Input {
    const void *data = nullptr;
    Shape shape;  // static
};

struct Output {
    // Where the result goes. Without data the engine keeps the result in `owned`.
    void *data = nullptr;
    size_t capacity = 0;
    // Before: the shape to expect, if known. After: what came out.
    Shape shape;
    size_t bytes = 0;
    std::vector<unsigned char> owned;
};

// One execution at a time. Different requests of one Compiled may run on different threads, though an engine
// may make them take turns.
class Request {
public:
    virtual ~Request() = default;
    // Computes on the calling thread. A result larger than an output's capacity is an error.
    virtual void run(const std::vector<Input> &inputs, std::vector<Output> &outputs) = 0;
};

class Compiled {
public:
    virtual ~Compiled() = default;
    virtual std::unique_ptr<Request> request() = 0;
};

// A model that was read: what goes in and out is known, nothing is compiled.
class Model {
public:
    virtual ~Model() = default;
    virtual const std::vector<Port> &inputs() const = 0;
    virtual const std::vector<Port> &outputs() const = 0;
    // Sets the shape of every input, in order, possibly with open dimensions; inputs() and outputs() follow.
    virtual void reshape(const std::vector<Shape> &shapes) = 0;
    virtual std::shared_ptr<Compiled> compile() = 0;
};

// An ONNX model from a file, or from memory when `path` is empty; `label` names it in messages.
std::unique_ptr<Model> read_onnx(const std::string &path, const std::string &content,
                                 const std::string &label);

// Where OpenVINO is, for the first use; "" = look for it. The environment variable AIOASCEND_OPENVINO_LIBRARY
// wins.
void set_library(const std::string &path);

}  // namespace aclsim::engine
