// SPDX-License-Identifier: Apache-2.0
// Last error, messages, exception callbacks.
#include "core/exception.h"
#include "core/thread_state.h"
#include "export.h"

using namespace aclsim;

namespace {

aclError check_level(aclrtLastErrLevel level, const char *function) {
    return level == ACL_RT_THREAD_LEVEL
               ? 0
               : fail(ACL_ERROR_INVALID_PARAM, "%s: level %d is not ACL_RT_THREAD_LEVEL (0)", function,
                      static_cast<int>(level));
}

}  // namespace

extern "C" {

ACL_EXPORT const char *aclGetRecentErrMsg() {
    ACL_ENTER_OR(aclGetRecentErrMsg, nullptr);
    std::string text = take_messages();
    if (text.empty()) {
        return nullptr;
    }
    thread_state().returned_message.swap(text);
    return thread_state().returned_message.c_str();
}

ACL_EXPORT aclError aclrtPeekAtLastError(aclrtLastErrLevel level) {
    ACL_ENTER(aclrtPeekAtLastError);
    if (aclError code = check_level(level, "aclrtPeekAtLastError")) {
        return code;
    }
    return thread_state().last_error;
}

ACL_EXPORT aclError aclrtGetLastError(aclrtLastErrLevel level) {
    ACL_ENTER(aclrtGetLastError);
    if (aclError code = check_level(level, "aclrtGetLastError")) {
        return code;
    }
    const aclError code = thread_state().last_error;
    thread_state().last_error = 0;
    return code;
}

ACL_EXPORT aclError aclrtGetThreadLastTaskId(uint32_t *taskId) {
    ACL_ENTER(aclrtGetThreadLastTaskId);
    if (taskId == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetThreadLastTaskId: taskId is NULL");
    }
    *taskId = thread_state().last_task_id;
    return 0;
}

ACL_EXPORT aclError aclrtSetExceptionInfoCallback(aclrtExceptionInfoCallback callback) {
    ACL_ENTER(aclrtSetExceptionInfoCallback);
    set_exception_callback(callback);
    return 0;
}

ACL_EXPORT aclError aclrtExceptionInfoCallbackRegister(aclrtExceptionInfoCallback callback) {
    ACL_ENTER(aclrtExceptionInfoCallbackRegister);
    if (callback == nullptr) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtExceptionInfoCallbackRegister: callback is NULL");
    }
    add_exception_callback(callback);
    return 0;
}

ACL_EXPORT aclError aclrtExceptionInfoCallbackUnregister(aclrtExceptionInfoCallback callback) {
    ACL_ENTER(aclrtExceptionInfoCallbackUnregister);
    if (callback == nullptr) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtExceptionInfoCallbackUnregister: callback is NULL");
    }
    if (!remove_exception_callback(callback)) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtExceptionInfoCallbackUnregister: %p is not registered",
                    reinterpret_cast<void *>(callback));
    }
    return 0;
}

ACL_EXPORT uint32_t aclrtGetTaskIdFromExceptionInfo(const aclrtExceptionInfo *info) {
    ACL_ENTER_OR(aclrtGetTaskIdFromExceptionInfo, UINT32_MAX);
    const ExceptionFacts *facts = exception_facts(info);
    return facts == nullptr ? UINT32_MAX : facts->task_id;
}

ACL_EXPORT uint32_t aclrtGetStreamIdFromExceptionInfo(const aclrtExceptionInfo *info) {
    ACL_ENTER_OR(aclrtGetStreamIdFromExceptionInfo, UINT32_MAX);
    const ExceptionFacts *facts = exception_facts(info);
    return facts == nullptr ? UINT32_MAX : facts->stream_id;
}

ACL_EXPORT uint32_t aclrtGetThreadIdFromExceptionInfo(const aclrtExceptionInfo *info) {
    ACL_ENTER_OR(aclrtGetThreadIdFromExceptionInfo, UINT32_MAX);
    const ExceptionFacts *facts = exception_facts(info);
    return facts == nullptr ? UINT32_MAX : facts->thread_id;
}

ACL_EXPORT uint32_t aclrtGetDeviceIdFromExceptionInfo(const aclrtExceptionInfo *info) {
    ACL_ENTER_OR(aclrtGetDeviceIdFromExceptionInfo, UINT32_MAX);
    const ExceptionFacts *facts = exception_facts(info);
    return facts == nullptr ? UINT32_MAX : facts->device_id;
}

ACL_EXPORT uint32_t aclrtGetErrorCodeFromExceptionInfo(const aclrtExceptionInfo *info) {
    ACL_ENTER_OR(aclrtGetErrorCodeFromExceptionInfo, UINT32_MAX);
    const ExceptionFacts *facts = exception_facts(info);
    return facts == nullptr ? UINT32_MAX : facts->code;
}

}  // extern "C"
