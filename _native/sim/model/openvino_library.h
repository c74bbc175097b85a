// SPDX-License-Identifier: Apache-2.0
// OpenVINO, loaded at its first use and never unloaded.
#pragma once

#include <memory>
#include <string>

#include "acl/acl.h"
#include "model/openvino_api.h"

namespace aclsim::openvino {

struct Library {
    Functions call{};
    std::string path;
    ov_core *core = nullptr;
    // NUM_STREAMS. "0" computes on the calling thread, without threads of OpenVINO's own; "1" if it refuses.
    const char *streams = "0";
};

// Loads the library if that has not happened yet. Throws ModelError (500002): not found, too old, failed
// self-test.
const Library &library();

// Throws ModelError with `code` and OpenVINO's explanation when the status is not success.
void check(Status status, aclError code, const std::string &what);

// The resolved functions, for releasing what they returned.
const Functions &functions();

template <auto Free>
struct Release {
    template <class T>
    void operator()(T *object) const {
        (functions().*Free)(object);
    }
};

using CoreModel = std::unique_ptr<ov_model, Release<&Functions::ov_model_free>>;
using CompiledModel = std::unique_ptr<ov_compiled_model, Release<&Functions::ov_compiled_model_free>>;
using InferRequest = std::unique_ptr<ov_infer_request, Release<&Functions::ov_infer_request_free>>;
using Tensor = std::unique_ptr<ov_tensor, Release<&Functions::ov_tensor_free>>;
using PortHandle = std::unique_ptr<ov_output_const_port, Release<&Functions::ov_output_const_port_free>>;

// Compiled for the CPU in full single precision (the default would be bfloat16 where the CPU has it).
CompiledModel compile(const Library &library, const ov_model *model, const std::string &label);

// A tensor in memory of the caller.
Tensor tensor_over(ElementType type, const Shape &shape, void *data, const std::string &label);

}  // namespace aclsim::openvino
