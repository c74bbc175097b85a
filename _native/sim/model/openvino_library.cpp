// SPDX-License-Identifier: Apache-2.0
#include "model/openvino_library.h"

#include <cstdlib>
#include <dlfcn.h>
#include <mutex>
#include <sstream>

#include "core/task.h"
#include "model/engine.h"
#include "model/model_error.h"

namespace aclsim {
namespace openvino {
namespace {

// Never destroyed: device threads may still use them while the process exits.
struct State {
    std::mutex mutex;
    std::string configured_path;
    Library library;
    bool usable = false;
};

State &state() {
    static State *instance = new State;
    return *instance;
}

// ONNX: y = x + x for two floats.
constexpr char self_test_model[] =
    "\x08\x08\x12\x00:5\n\x0e\n\x01x\n\x01x\x12\x01y\"\x03"
    "Add\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x02"
    "b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x02"
    "B\x04\n\x00\x10\r";

std::string one_line(const std::string &text) {
    std::istringstream lines(text);
    std::string line, out;
    while (std::getline(lines, line)) {
        if (line.empty() || line.rfind("Exception from ", 0) == 0) {
            continue;
        }
        out += (out.empty() ? "" : "; ") + line;
    }
    return out.empty() ? text : out;
}

void *open_library(const std::string &path) {
    if (void *handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        return handle;
    }
    const char *reason = ::dlerror();
    throw ModelError(
        ACL_ERROR_GE_FAILURE,
        "the simulator computes ONNX models with OpenVINO, which could not be loaded (" +
            std::string(reason ? reason : path) +
            "); install it with: pip install \"aioascend[sim]\", or set AIOASCEND_OPENVINO_LIBRARY to "
            "the path of libopenvino_c.so");
}

Functions resolve(void *handle, const std::string &path) {
    Functions table{};
    auto find = [&](const char *name) {
        if (void *symbol = ::dlsym(handle, name)) {
            return symbol;
        }
        throw ModelError(ACL_ERROR_GE_FAILURE, path + " has no function '" + name +
                                                   "': it is no OpenVINO, or one older than 2025.1; install "
                                                   "\"openvino>=2025.1\"");
    };
#define ACLSIM_RESOLVE(result, name, arguments) \
    table.name = reinterpret_cast<decltype(table.name)>(find(#name));
    ACLSIM_OPENVINO_FUNCTIONS(ACLSIM_RESOLVE)
#undef ACLSIM_RESOLVE
    return table;
}

// The numbers of the element types changed in 2025.1 and neither symbols nor file name tell: older libraries
// return success and wrong results.
void require_version(const Functions &call, const std::string &path) {
    Version version{};
    if (call.ov_get_openvino_version(&version) != 0) {
        throw ModelError(ACL_ERROR_GE_FAILURE, path + ": OpenVINO does not tell its version");
    }
    std::string build = version.build_number ? version.build_number : "";
    call.ov_version_free(&version);
    int year = 0, release = 0;
    if (std::sscanf(build.c_str(), "%d.%d", &year, &release) != 2 || year < 2025 ||
        (year == 2025 && release < 1)) {
        throw ModelError(ACL_ERROR_GE_FAILURE,
                         path + " is OpenVINO " + build + "; install \"openvino>=2025.1\"");
    }
}

void self_test(const Library &library) {
    const Functions &call = library.call;
    const std::string label = "self-test of " + library.path;
    ov_model *raw_model = nullptr;
    check(call.ov_core_read_model_from_memory_buffer(library.core, self_test_model,
                                                     sizeof(self_test_model) - 1, nullptr, &raw_model),
          ACL_ERROR_GE_FAILURE, label);
    CoreModel model(raw_model);
    CompiledModel compiled = compile(library, model.get(), label);
    ov_infer_request *raw_request = nullptr;
    check(call.ov_compiled_model_create_infer_request(compiled.get(), &raw_request), ACL_ERROR_GE_FAILURE,
          label);
    InferRequest request(raw_request);
    float in[2] = {1.25f, -3.0f}, out[2] = {0, 0};
    int64_t dims[1] = {2};
    Tensor x = tensor_over(F32, {1, dims}, in, label), y = tensor_over(F32, {1, dims}, out, label);
    check(call.ov_infer_request_set_input_tensor_by_index(request.get(), 0, x.get()), ACL_ERROR_GE_FAILURE,
          label);
    check(call.ov_infer_request_set_output_tensor_by_index(request.get(), 0, y.get()), ACL_ERROR_GE_FAILURE,
          label);
    check(call.ov_infer_request_infer(request.get()), ACL_ERROR_GE_FAILURE, label);
    if (out[0] != 2.5f || out[1] != -6.0f) {
        throw ModelError(ACL_ERROR_GE_FAILURE, label + ": wrong result; reinstall \"openvino>=2025.1\"");
    }
}

void load(State &state) {
    Library &library = state.library;
    const char *from_environment = std::getenv("AIOASCEND_OPENVINO_LIBRARY");
    library.path = from_environment && *from_environment ? from_environment
                   : !state.configured_path.empty()      ? state.configured_path
                                                         : "libopenvino_c.so";
    void *handle = open_library(library.path);
    library.call = resolve(handle, library.path);
    require_version(library.call, library.path);
    check(library.call.ov_core_create(&library.core), ACL_ERROR_GE_FAILURE, "starting OpenVINO");
    library.streams = "0";
    try {
        self_test(library);
    } catch (const ModelError &) {
        library.streams = "1";
        self_test(library);
    }
    state.usable = true;
}

}  // namespace

const Library &library() {
    State &current = state();
    std::lock_guard<std::mutex> lock(current.mutex);
    if (!current.usable) {
        load(current);
    }
    return current.library;
}

const Functions &functions() { return state().library.call; }

void check(Status status, aclError code, const std::string &what) {
    if (status == 0) {
        return;
    }
    // The text is gone after the next call into OpenVINO.
    const char *last = functions().ov_get_last_err_msg();
    std::string problem = last && *last ? one_line(last) : functions().ov_get_error_info(status);
    throw ModelError(code, what + ": " + problem);
}

CompiledModel compile(const Library &library, const ov_model *model, const std::string &label) {
    ov_compiled_model *compiled = nullptr;
    check(library.call.ov_core_compile_model(library.core, model, "CPU", 6, &compiled,
                                             "INFERENCE_PRECISION_HINT", "f32", "NUM_STREAMS",
                                             library.streams, "ENABLE_CPU_PINNING", "NO"),
          ACL_ERROR_GE_FAILURE, label);
    return CompiledModel(compiled);
}

Tensor tensor_over(ElementType type, const Shape &shape, void *data, const std::string &label) {
    ov_tensor *tensor = nullptr;
    check(functions().ov_tensor_create_from_host_ptr(type, shape, data, &tensor), ACL_ERROR_GE_FAILURE,
          label);
    return Tensor(tensor);
}

}  // namespace openvino

void engine::set_library(const std::string &path) {
    openvino::State &current = openvino::state();
    std::lock_guard<std::mutex> lock(current.mutex);
    current.configured_path = path;
}

}  // namespace aclsim
