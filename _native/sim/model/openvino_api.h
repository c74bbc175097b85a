// SPDX-License-Identifier: Apache-2.0
// The functions of OpenVINO's C API that the engine calls. Building must not need OpenVINO, so they are
// declared here and resolved at run time; tests/sim_models/openvino_types.cpp checks the declarations against
// the real headers.
#pragma once

#include <cstddef>
#include <cstdint>

struct ov_core;
struct ov_model;
struct ov_tensor;
struct ov_compiled_model;
struct ov_infer_request;
struct ov_output_const_port;

namespace aclsim::openvino {

using Status = int;  // 0 is success

// Values since 2025.1; before, everything after the first was one higher.
enum ElementType : unsigned {
    Dynamic = 0,
    Boolean = 1,
    Bf16 = 2,
    F16 = 3,
    F32 = 4,
    F64 = 5,
    I8 = 7,
    I16 = 8,
    I32 = 9,
    I64 = 10,
    U8 = 16,
    U16 = 17,
    U32 = 18,
    U64 = 19,
};

struct Version {
    const char *build_number;
    const char *description;
};

struct Shape {
    int64_t rank;
    int64_t *dims;
};

struct Dimension {
    int64_t min;
    int64_t max;  // -1 when there is no upper limit
};

struct PartialShape {
    Dimension rank;
    Dimension *dims;
};

#define ACLSIM_OPENVINO_FUNCTIONS(X)                                                                         \
    X(Status, ov_get_openvino_version, (Version *))                                                          \
    X(void, ov_version_free, (Version *))                                                                    \
    X(const char *, ov_get_last_err_msg, ())                                                                 \
    X(const char *, ov_get_error_info, (Status))                                                             \
    X(void, ov_free, (const char *))                                                                         \
    X(Status, ov_core_create, (ov_core **))                                                                  \
    X(Status, ov_core_read_model, (const ov_core *, const char *, const char *, ov_model **))                \
    X(Status, ov_core_read_model_from_memory_buffer,                                                         \
      (const ov_core *, const char *, size_t, const ov_tensor *, ov_model **))                               \
    X(Status, ov_core_compile_model,                                                                         \
      (const ov_core *, const ov_model *, const char *, size_t, ov_compiled_model **, ...))                  \
    X(void, ov_model_free, (ov_model *))                                                                     \
    X(Status, ov_model_inputs_size, (const ov_model *, size_t *))                                            \
    X(Status, ov_model_outputs_size, (const ov_model *, size_t *))                                           \
    X(Status, ov_model_const_input_by_index, (const ov_model *, size_t, ov_output_const_port **))            \
    X(Status, ov_model_const_output_by_index, (const ov_model *, size_t, ov_output_const_port **))           \
    X(Status, ov_model_reshape, (const ov_model *, const char **, const PartialShape *, size_t))             \
    X(Status, ov_port_get_any_name, (const ov_output_const_port *, char **))                                 \
    X(Status, ov_port_get_partial_shape, (const ov_output_const_port *, PartialShape *))                     \
    X(Status, ov_port_get_element_type, (const ov_output_const_port *, ElementType *))                       \
    X(void, ov_output_const_port_free, (ov_output_const_port *))                                             \
    X(void, ov_partial_shape_free, (PartialShape *))                                                         \
    X(Status, ov_shape_free, (Shape *))                                                                      \
    X(void, ov_compiled_model_free, (ov_compiled_model *))                                                   \
    X(Status, ov_compiled_model_create_infer_request, (const ov_compiled_model *, ov_infer_request **))      \
    X(void, ov_infer_request_free, (ov_infer_request *))                                                     \
    X(Status, ov_infer_request_set_input_tensor_by_index, (ov_infer_request *, size_t, const ov_tensor *))   \
    X(Status, ov_infer_request_set_output_tensor_by_index, (ov_infer_request *, size_t, const ov_tensor *))  \
    X(Status, ov_infer_request_get_output_tensor_by_index, (const ov_infer_request *, size_t, ov_tensor **)) \
    X(Status, ov_infer_request_infer, (ov_infer_request *))                                                  \
    X(Status, ov_tensor_create, (ElementType, Shape, ov_tensor **))                                          \
    X(Status, ov_tensor_create_from_host_ptr, (ElementType, Shape, void *, ov_tensor **))                    \
    X(Status, ov_tensor_get_shape, (const ov_tensor *, Shape *))                                             \
    X(Status, ov_tensor_data, (const ov_tensor *, void **))                                                  \
    X(void, ov_tensor_free, (ov_tensor *))

struct Functions {
#define ACLSIM_MEMBER(result, name, arguments) result(*name) arguments;
    ACLSIM_OPENVINO_FUNCTIONS(ACLSIM_MEMBER)
#undef ACLSIM_MEMBER
};

}  // namespace aclsim::openvino
