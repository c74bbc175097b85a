// SPDX-License-Identifier: Apache-2.0
#include "core/context.h"

#include "core/device.h"
#include "export.h"

using namespace aclsim;

extern "C" {

ACL_EXPORT aclError aclrtCreateContext(aclrtContext *context, int32_t deviceId) {
    ACL_ENTER(aclrtCreateContext);
    if (context == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtCreateContext: context is NULL");
    }
    Context *created = nullptr;
    if (aclError code = create_context(deviceId, &created)) {
        return code;
    }
    set_current_context(created);
    *context = created->handle;
    return 0;
}

ACL_EXPORT aclError aclrtDestroyContext(aclrtContext context) {
    ACL_ENTER(aclrtDestroyContext);
    if (context == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtDestroyContext: context is NULL");
    }
    return destroy_context(context);
}

ACL_EXPORT aclError aclrtSetCurrentContext(aclrtContext context) {
    ACL_ENTER(aclrtSetCurrentContext);
    if (context == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM,
                    "aclrtSetCurrentContext: context is NULL; a thread's context can be "
                    "replaced but not removed");
    }
    const Context *found = context_table().find(context);
    if (found == nullptr) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtSetCurrentContext: %p is no context, or was destroyed",
                    context);
    }
    set_current_context(found);
    return 0;
}

ACL_EXPORT aclError aclrtGetCurrentContext(aclrtContext *context) {
    ACL_ENTER(aclrtGetCurrentContext);
    if (context == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetCurrentContext: context is NULL");
    }
    Context *current = nullptr;
    if (aclError code = current_context(&current)) {
        return code;
    }
    *context = current->handle;
    return 0;
}

ACL_EXPORT aclError aclrtCtxGetCurrentDefaultStream(aclrtStream *stream) {
    ACL_ENTER(aclrtCtxGetCurrentDefaultStream);
    if (stream == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtCtxGetCurrentDefaultStream: stream is NULL");
    }
    Context *current = nullptr;
    if (aclError code = current_context(&current)) {
        return code;
    }
    *stream = current->default_stream->handle;
    return 0;
}

ACL_EXPORT aclError aclrtGetPrimaryCtxState(int32_t deviceId, uint32_t *flags, int32_t *active) {
    ACL_ENTER(aclrtGetPrimaryCtxState);
    if (active == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetPrimaryCtxState: active is NULL");
    }
    if (device_at(deviceId) == nullptr) {
        return invalid_device(deviceId);
    }
    if (flags != nullptr) {
        *flags = 0;
    }
    *active = primary_context_active(deviceId) ? 1 : 0;
    return 0;
}

}  // extern "C"
