// SPDX-License-Identifier: Apache-2.0
// Executing models.
#include <cstring>

#include "core/errors.h"
#include "core/task.h"
#include "export.h"
#include "model/execution.h"
#include "model/model_error.h"

struct aclmdlExecConfigHandle {
    int32_t stream_timeout_ms = -1;
};

namespace aclsim {
namespace {

LiveHandles<aclmdlExecConfigHandle> &exec_configs() {
    static auto *live = new LiveHandles<aclmdlExecConfigHandle>;
    return *live;
}

aclError not_a_config(const aclmdlExecConfigHandle *handle) {
    return fail(ACL_ERROR_INVALID_PARAM,
                "execution config %p was not created by aclmdlCreateExecConfigHandle or is destroyed",
                static_cast<const void *>(handle));
}

// Options whose value the simulator takes note of or can do nothing about, with the size each must have.
size_t option_size(aclmdlExecConfigAttr attr) {
    switch (attr) {
        case ACL_MDL_STREAM_SYNC_TIMEOUT:
        case ACL_MDL_EVENT_SYNC_TIMEOUT:
        case ACL_MDL_EXEC_PRIORITY_INT32: return sizeof(int32_t);
        case ACL_MDL_WORK_ADDR_PTR: return sizeof(void *);
        case ACL_MDL_WORK_SIZET:
        case ACL_MDL_MPAIMID_SIZET:
        case ACL_MDL_AICQOS_SIZET:
        case ACL_MDL_AICOST_SIZET:
        case ACL_MDL_MEC_TIMETHR_SIZET: return sizeof(size_t);
        default: return 0;
    }
}

}  // namespace
}  // namespace aclsim

using namespace aclsim;

extern "C" {

ACL_EXPORT aclError aclmdlExecute(uint32_t modelId, const aclmdlDataset *input, aclmdlDataset *output) {
    ACL_ENTER(aclmdlExecute);
    return guarded([&]() -> aclError {
        Context *context = nullptr;
        if (aclError code = current_context(&context)) {
            return code;
        }
        std::shared_ptr<Execution> execution;
        if (aclError code = Execution::prepare(modelId, input, output, true, &execution)) {
            return code;
        }
        if (aclError code = run_blocking(*context, execution->task())) {
            return code;
        }
        return execution->deliver_system_outputs();
    });
}

ACL_EXPORT aclError aclmdlExecuteAsync(uint32_t modelId, const aclmdlDataset *input, aclmdlDataset *output,
                                       aclrtStream stream) {
    ACL_ENTER(aclmdlExecuteAsync);
    return guarded([&]() -> aclError {
        Stream *target = nullptr;
        if (aclError code = resolve_stream(stream, &target)) {
            return code;
        }
        std::shared_ptr<Execution> execution;
        if (aclError code = Execution::prepare(modelId, input, output, false, &execution)) {
            return code;
        }
        return submit(*target, execution->task());
    });
}

ACL_EXPORT aclmdlExecConfigHandle *aclmdlCreateExecConfigHandle() {
    ACL_ENTER_OR(aclmdlCreateExecConfigHandle, nullptr);
    return exec_configs().add(std::make_unique<aclmdlExecConfigHandle>());
}

ACL_EXPORT aclError aclmdlDestroyExecConfigHandle(const aclmdlExecConfigHandle *handle) {
    ACL_ENTER(aclmdlDestroyExecConfigHandle);
    return exec_configs().remove(handle) ? ACL_SUCCESS : not_a_config(handle);
}

ACL_EXPORT aclError aclmdlSetExecConfigOpt(aclmdlExecConfigHandle *handle, aclmdlExecConfigAttr attr,
                                           const void *attrValue, size_t valueSize) {
    ACL_ENTER(aclmdlSetExecConfigOpt);
    if (!exec_configs().contains(handle)) {
        return not_a_config(handle);
    }
    size_t expected = option_size(attr);
    if (expected == 0) {
        return fail(ACL_ERROR_INVALID_PARAM, "execution option %d is unknown to the simulator",
                    static_cast<int>(attr));
    }
    if (!attrValue || valueSize != expected) {
        return fail(ACL_ERROR_INVALID_PARAM, "execution option %d takes a value of %zu bytes, not %zu at %p",
                    static_cast<int>(attr), expected, valueSize, attrValue);
    }
    if (attr != ACL_MDL_STREAM_SYNC_TIMEOUT && attr != ACL_MDL_EVENT_SYNC_TIMEOUT) {
        return ACL_SUCCESS;
    }
    int32_t timeout = 0;
    std::memcpy(&timeout, attrValue, sizeof(timeout));
    if (timeout == 0 || timeout < -1) {
        return fail(ACL_ERROR_INVALID_PARAM, "timeout %d ms; give -1 (none) or a positive number", timeout);
    }
    if (attr == ACL_MDL_STREAM_SYNC_TIMEOUT) {
        handle->stream_timeout_ms = timeout;
    }
    return ACL_SUCCESS;
}

ACL_EXPORT aclError aclmdlExecuteV2(uint32_t modelId, const aclmdlDataset *input, aclmdlDataset *output,
                                    aclrtStream stream, const aclmdlExecConfigHandle *handle) {
    ACL_ENTER(aclmdlExecuteV2);
    return guarded([&]() -> aclError {
        if (!exec_configs().contains(handle)) {
            return not_a_config(handle);
        }
        Stream *target = nullptr;
        if (aclError code = resolve_stream(stream, &target)) {
            return code;
        }
        std::shared_ptr<Execution> execution;
        if (aclError code = Execution::prepare(modelId, input, output, true, &execution)) {
            return code;
        }
        if (aclError code = submit(*target, execution->task())) {
            return code;
        }
        if (aclError code = aclrtSynchronizeStreamWithTimeout(stream, handle->stream_timeout_ms)) {
            return code;
        }
        return execution->deliver_system_outputs();
    });
}

}  // extern "C"
