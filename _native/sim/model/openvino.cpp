// SPDX-License-Identifier: Apache-2.0
// ONNX models computed by OpenVINO.
#include <algorithm>
#include <cstring>

#include "model/engine.h"
#include "model/model_error.h"
#include "model/openvino_library.h"

namespace aclsim::engine {
namespace {

using namespace openvino;

constexpr std::pair<ElementType, aclDataType> element_types[] = {
    {Boolean, ACL_BOOL}, {Bf16, ACL_BF16},  {F16, ACL_FLOAT16}, {F32, ACL_FLOAT}, {F64, ACL_DOUBLE},
    {I8, ACL_INT8},      {I16, ACL_INT16},  {I32, ACL_INT32},   {I64, ACL_INT64}, {U8, ACL_UINT8},
    {U16, ACL_UINT16},   {U32, ACL_UINT32}, {U64, ACL_UINT64},
};

aclDataType to_acl(ElementType type, const std::string &label, const std::string &port) {
    for (const auto &[ours, acl] : element_types) {
        if (ours == type) {
            return acl;
        }
    }
    throw ModelError(ACL_ERROR_GE_DATATYPE_INVALID, label + ": '" + port + "' has OpenVINO's element type " +
                                                        std::to_string(type) +
                                                        ", which no aclDataType stands for");
}

ElementType from_acl(aclDataType type) {
    for (const auto &[ours, acl] : element_types) {
        if (acl == type) {
            return ours;
        }
    }
    return Dynamic;
}

// A port with what OpenVINO knows of its shape, also the limits of open dimensions.
struct BoundedPort {
    Port port;
    std::vector<openvino::Dimension> bounds;
};

BoundedPort describe(const Functions &call, PortHandle handle, const std::string &label) {
    BoundedPort out;
    char *name = nullptr;
    check(call.ov_port_get_any_name(handle.get(), &name), ACL_ERROR_READ_MODEL_FAILURE, label);
    out.port.name = name;
    call.ov_free(name);
    ElementType type = Dynamic;
    check(call.ov_port_get_element_type(handle.get(), &type), ACL_ERROR_READ_MODEL_FAILURE, label);
    out.port.type = to_acl(type, label, out.port.name);
    PartialShape shape{};
    check(call.ov_port_get_partial_shape(handle.get(), &shape), ACL_ERROR_READ_MODEL_FAILURE, label);
    bool ranked = shape.rank.min == shape.rank.max;
    if (ranked) {
        out.bounds.assign(shape.dims, shape.dims + shape.rank.min);
    }
    call.ov_partial_shape_free(&shape);
    if (!ranked) {
        throw ModelError(ACL_ERROR_READ_MODEL_FAILURE,
                         label + ": the number of dimensions of '" + out.port.name +
                             "' is not fixed; export the model with fixed ranks");
    }
    for (const openvino::Dimension &bound : out.bounds) {
        out.port.shape.push_back(bound.min == bound.max ? bound.min : -1);
    }
    return out;
}

std::vector<BoundedPort> describe_all(const Functions &call, const ov_model *model, bool inputs,
                                      const std::string &label) {
    size_t count = 0;
    check((inputs ? call.ov_model_inputs_size : call.ov_model_outputs_size)(model, &count),
          ACL_ERROR_READ_MODEL_FAILURE, label);
    std::vector<BoundedPort> out;
    for (size_t i = 0; i < count; ++i) {
        ov_output_const_port *port = nullptr;
        check((inputs ? call.ov_model_const_input_by_index : call.ov_model_const_output_by_index)(model, i,
                                                                                                  &port),
              ACL_ERROR_READ_MODEL_FAILURE, label);
        out.push_back(describe(call, PortHandle(port), label));
    }
    return out;
}

std::vector<Port> ports_of(const std::vector<BoundedPort> &bounded) {
    std::vector<Port> out;
    for (const BoundedPort &item : bounded) {
        out.push_back(item.port);
    }
    return out;
}

// OpenVINO accepts a larger buffer for an output whose shape it learns while computing, if the buffer's shape
// fits the port's. Such a shape for `elements` exists when the open dimensions can be chosen to
// waste nothing.
bool shape_for_capacity(const std::vector<openvino::Dimension> &bounds, size_t elements, aclsim::Shape *out) {
    size_t unit = 1, open = bounds.size();
    out->clear();
    for (size_t i = 0; i < bounds.size(); ++i) {
        bool unlimited = bounds[i].max < 0;
        if (open == bounds.size() && unlimited) {
            open = i;
            out->push_back(1);
            continue;
        }
        out->push_back(bounds[i].min == bounds[i].max ? bounds[i].min : std::max<int64_t>(bounds[i].min, 1));
        unit *= static_cast<size_t>(out->back());
    }
    if (open == bounds.size() || unit == 0 || elements == 0 || elements % unit != 0) {
        return false;
    }
    (*out)[open] = static_cast<int64_t>(elements / unit);
    return (*out)[open] >= bounds[open].min;
}

[[noreturn]] void too_small(const std::string &label, const Port &port, const std::string &shape,
                            size_t capacity) {
    throw ModelError(ACL_ERROR_RT_MODEL_EXECUTE, label + ": output '" + port.name + "' came out as " + shape +
                                                     " " + type_name(port.type) +
                                                     ", which does not fit into its buffer of " +
                                                     std::to_string(capacity) + " bytes; give a larger one");
}

class OpenVinoRequest : public Request {
public:
    OpenVinoRequest(std::shared_ptr<const CompiledModel> compiled, std::vector<BoundedPort> inputs,
                    std::vector<BoundedPort> outputs, std::string label)
        : compiled_(std::move(compiled)),
          inputs_(std::move(inputs)),
          outputs_(std::move(outputs)),
          label_(std::move(label)) {
        ov_infer_request *request = nullptr;
        check(call_.ov_compiled_model_create_infer_request(compiled_->get(), &request), ACL_ERROR_GE_FAILURE,
              label_);
        request_.reset(request);
    }

    void run(const std::vector<Input> &inputs, std::vector<Output> &outputs) override {
        std::vector<Tensor> tensors;  // must outlive infer
        for (size_t i = 0; i < inputs.size(); ++i) {
            tensors.push_back(over(inputs_[i].port, inputs[i].shape, const_cast<void *>(inputs[i].data)));
            check(call_.ov_infer_request_set_input_tensor_by_index(request_.get(), i, tensors.back().get()),
                  ACL_ERROR_RT_MODEL_EXECUTE, label_);
        }
        std::vector<bool> in_place;
        for (size_t i = 0; i < outputs.size(); ++i) {
            tensors.push_back(output_tensor(i, outputs[i], &in_place));
            check(call_.ov_infer_request_set_output_tensor_by_index(request_.get(), i, tensors.back().get()),
                  ACL_ERROR_RT_MODEL_EXECUTE, label_);
        }
        try {
            check(call_.ov_infer_request_infer(request_.get()), ACL_ERROR_RT_MODEL_EXECUTE, label_);
        } catch (const ModelError &error) {
            explain_small_buffer(error.what(), outputs, in_place);
            throw;
        }
        for (size_t i = 0; i < outputs.size(); ++i) {
            collect(i, outputs[i], in_place[i]);
        }
    }

private:
    Tensor over(const Port &port, aclsim::Shape shape, void *data) {
        return tensor_over(from_acl(port.type), {static_cast<int64_t>(shape.size()), shape.data()}, data,
                           label_);
    }

    // In the caller's memory where the shape allows, else in OpenVINO's.
    Tensor output_tensor(size_t index, const Output &output, std::vector<bool> *in_place) {
        const Port &port = outputs_[index].port;
        aclsim::Shape shape = is_static(port.shape) ? port.shape : output.shape;
        bool known = matches(port.shape, shape);
        if (known && output.data && output.capacity < *byte_size(shape, port.type)) {
            too_small(label_, port, to_text(shape), output.capacity);
        }
        bool bind =
            output.data && (known || shape_for_capacity(outputs_[index].bounds,
                                                        output.capacity / element_size(port.type), &shape));
        in_place->push_back(bind);
        if (bind) {
            return over(port, shape, output.data);
        }
        if (!known) {
            // An empty tensor of the right rank fits every open shape and grows while computing.
            shape = port.shape;
            std::replace(shape.begin(), shape.end(), int64_t{-1}, int64_t{0});
        }
        ov_tensor *tensor = nullptr;
        check(call_.ov_tensor_create(from_acl(port.type), {static_cast<int64_t>(shape.size()), shape.data()},
                                     &tensor),
              ACL_ERROR_RT_MODEL_EXECUTE, label_);
        return Tensor(tensor);
    }

    void collect(size_t index, Output &output, bool in_place) {
        const Port &port = outputs_[index].port;
        ov_tensor *raw = nullptr;
        check(call_.ov_infer_request_get_output_tensor_by_index(request_.get(), index, &raw),
              ACL_ERROR_RT_MODEL_EXECUTE, label_);
        Tensor tensor(raw);
        openvino::Shape shape{};
        check(call_.ov_tensor_get_shape(tensor.get(), &shape), ACL_ERROR_RT_MODEL_EXECUTE, label_);
        output.shape.assign(shape.dims, shape.dims + shape.rank);
        call_.ov_shape_free(&shape);
        output.bytes = *byte_size(output.shape, port.type);
        if (in_place) {
            return;
        }
        void *data = nullptr;
        check(call_.ov_tensor_data(tensor.get(), &data), ACL_ERROR_RT_MODEL_EXECUTE, label_);
        if (output.data) {
            if (output.capacity < output.bytes) {
                too_small(label_, port, to_text(output.shape), output.capacity);
            }
            std::memcpy(output.data, data, output.bytes);
        } else {
            auto *bytes = static_cast<unsigned char *>(data);
            output.owned.assign(bytes, bytes + output.bytes);
        }
    }

    // OpenVINO reports a buffer that is too small only as text, with the shape that it needed.
    void explain_small_buffer(const std::string &problem, const std::vector<Output> &outputs,
                              const std::vector<bool> &in_place) {
        static const std::string mark = "set new shape: ";
        size_t at = problem.find(mark);
        if (at == std::string::npos) {
            return;
        }
        std::string shape = problem.substr(at + mark.size());
        shape = shape.substr(0, shape.find(']') + 1);
        auto rank = static_cast<size_t>(std::count(shape.begin(), shape.end(), ',')) + 1;
        for (size_t i = 0; i < outputs.size(); ++i) {
            if (in_place[i] && outputs_[i].bounds.size() == rank) {
                too_small(label_, outputs_[i].port, shape, outputs[i].capacity);
            }
        }
    }

    const Functions &call_ = functions();
    std::shared_ptr<const CompiledModel> compiled_;  // declared before the request, so released after it
    InferRequest request_;
    std::vector<BoundedPort> inputs_, outputs_;
    std::string label_;
};

class OpenVinoCompiled : public Compiled {
public:
    OpenVinoCompiled(CompiledModel compiled, std::vector<BoundedPort> inputs,
                     std::vector<BoundedPort> outputs, std::string label)
        : compiled_(std::make_shared<const CompiledModel>(std::move(compiled))),
          inputs_(std::move(inputs)),
          outputs_(std::move(outputs)),
          label_(std::move(label)) {}

    std::unique_ptr<Request> request() override {
        return std::make_unique<OpenVinoRequest>(compiled_, inputs_, outputs_, label_);
    }

private:
    std::shared_ptr<const CompiledModel> compiled_;
    std::vector<BoundedPort> inputs_, outputs_;
    std::string label_;
};

class OpenVinoModel : public Model {
public:
    OpenVinoModel(CoreModel model, std::string label) : model_(std::move(model)), label_(std::move(label)) {
        update();
    }

    const std::vector<Port> &inputs() const override { return input_ports_; }
    const std::vector<Port> &outputs() const override { return output_ports_; }

    void reshape(const std::vector<aclsim::Shape> &shapes) override {
        std::vector<const char *> names;
        std::vector<std::vector<openvino::Dimension>> dims;  // must not move once `partial` points into it
        std::vector<PartialShape> partial;
        dims.reserve(shapes.size());
        for (size_t i = 0; i < shapes.size(); ++i) {
            if (shapes[i].empty()) {
                continue;  // a scalar stays one, and OpenVINO would take its shape for an unknown one
            }
            names.push_back(input_ports_[i].name.c_str());
            dims.emplace_back();
            for (int64_t dim : shapes[i]) {
                dims.back().push_back(dim < 0 ? openvino::Dimension{0, -1} : openvino::Dimension{dim, dim});
            }
            auto rank = static_cast<int64_t>(shapes[i].size());
            partial.push_back({{rank, rank}, dims.back().data()});
        }
        check(functions().ov_model_reshape(model_.get(), names.data(), partial.data(), names.size()),
              ACL_ERROR_GE_SHAPE_INVALID, label_);
        update();
    }

    std::shared_ptr<Compiled> compile() override {
        return std::make_shared<OpenVinoCompiled>(openvino::compile(library(), model_.get(), label_), inputs_,
                                                  outputs_, label_);
    }

private:
    void update() {
        inputs_ = describe_all(functions(), model_.get(), true, label_);
        outputs_ = describe_all(functions(), model_.get(), false, label_);
        input_ports_ = ports_of(inputs_);
        output_ports_ = ports_of(outputs_);
    }

    CoreModel model_;
    std::string label_;
    std::vector<BoundedPort> inputs_, outputs_;
    std::vector<Port> input_ports_, output_ports_;
};

}  // namespace

std::unique_ptr<Model> read_onnx(const std::string &path, const std::string &content,
                                 const std::string &label) {
    const Library &openvino = library();
    ov_model *model = nullptr;
    Status status = path.empty()
                        ? openvino.call.ov_core_read_model_from_memory_buffer(openvino.core, content.data(),
                                                                              content.size(), nullptr, &model)
                        : openvino.call.ov_core_read_model(openvino.core, path.c_str(), nullptr, &model);
    check(status, ACL_ERROR_READ_MODEL_FAILURE, label + ": OpenVINO cannot read the model");
    return std::make_unique<OpenVinoModel>(CoreModel(model), label);
}

}  // namespace aclsim::engine
