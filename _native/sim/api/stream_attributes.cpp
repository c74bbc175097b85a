// SPDX-License-Identifier: Apache-2.0
// Stream ids, priorities, flags and attributes.
#include "core/context.h"
#include "core/device.h"
#include "core/launch.h"
#include "export.h"

using namespace aclsim;

namespace {

aclError set_failure_mode(const char *function, Stream &stream, uint64_t mode) {
    Lock lock(stream.device->mutex);
    Context &context = *stream.context;
    const bool stop = (mode & 1) != 0;
    if (context.stop_on_failure && !stop) {
        lock.unlock();
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                    "%s: the context stops on failure already; that cannot be undone", function);
    }
    context.stop_on_failure = stop;
    return 0;
}

// Reading calls work on any live stream; NULL needs a current context to name one.
aclError readable_stream(aclrtStream handle, Stream **out) {
    if (handle == nullptr) {
        return resolve_stream(handle, out);
    }
    Stream *stream = stream_table().find(handle);
    if (stream == nullptr) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is no stream, or was destroyed", handle);
    }
    *out = stream;
    return 0;
}

}  // namespace

extern "C" {

ACL_EXPORT aclError aclrtStreamGetId(aclrtStream stream, int32_t *streamId) {
    ACL_ENTER(aclrtStreamGetId);
    if (streamId == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtStreamGetId: streamId is NULL");
    }
    Stream *found = nullptr;
    if (aclError code = readable_stream(stream, &found)) {
        return code;
    }
    *streamId = found->id;
    return 0;
}

ACL_EXPORT aclError aclrtStreamGetPriority(aclrtStream stream, uint32_t *priority) {
    ACL_ENTER(aclrtStreamGetPriority);
    if (priority == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtStreamGetPriority: priority is NULL");
    }
    Stream *found = nullptr;
    if (aclError code = readable_stream(stream, &found)) {
        return code;
    }
    Lock lock(found->device->mutex);
    *priority = found->priority;
    return 0;
}

ACL_EXPORT aclError aclrtStreamGetFlags(aclrtStream stream, uint32_t *flags) {
    ACL_ENTER(aclrtStreamGetFlags);
    if (flags == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtStreamGetFlags: flags is NULL");
    }
    Stream *found = nullptr;
    if (aclError code = readable_stream(stream, &found)) {
        return code;
    }
    *flags = found->flags;
    return 0;
}

ACL_EXPORT aclError aclrtSetStreamFailureMode(aclrtStream stream, uint64_t mode) {
    ACL_ENTER(aclrtSetStreamFailureMode);
    Stream *found = nullptr;
    if (aclError code = resolve_stream(stream, &found)) {
        return code;
    }
    return set_failure_mode("aclrtSetStreamFailureMode", *found, mode);
}

ACL_EXPORT aclError aclrtSetStreamAttribute(aclrtStream stream, aclrtStreamAttr stmAttrType,
                                            aclrtStreamAttrValue *value) {
    ACL_ENTER(aclrtSetStreamAttribute);
    if (value == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtSetStreamAttribute: value is NULL");
    }
    Stream *found = nullptr;
    if (aclError code = resolve_stream(stream, &found)) {
        return code;
    }
    if (stmAttrType == ACL_STREAM_ATTR_FAILURE_MODE) {
        return set_failure_mode("aclrtSetStreamAttribute", *found, value->failureMode);
    }
    Lock lock(found->device->mutex);
    switch (stmAttrType) {
        case ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK: found->overflow_switch = value->overflowSwitch; return 0;
        case ACL_STREAM_ATTR_USER_CUSTOM_TAG: found->custom_tag = value->userCustomTag; return 0;
        case ACL_STREAM_ATTR_CACHE_OP_INFO: found->cache_op_info = value->cacheOpInfoSwitch; return 0;
        case ACL_STREAM_ATTR_PRIORITY: found->priority = std::min(value->streamPriority, 7u); return 0;
        default: break;
    }
    lock.unlock();
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtSetStreamAttribute: there is no attribute %d",
                static_cast<int>(stmAttrType));
}

ACL_EXPORT aclError aclrtGetStreamAttribute(aclrtStream stream, aclrtStreamAttr stmAttrType,
                                            aclrtStreamAttrValue *value) {
    ACL_ENTER(aclrtGetStreamAttribute);
    if (value == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetStreamAttribute: value is NULL");
    }
    Stream *found = nullptr;
    if (aclError code = resolve_stream(stream, &found)) {
        return code;
    }
    Lock lock(found->device->mutex);
    aclrtStreamAttrValue result{};
    switch (stmAttrType) {
        case ACL_STREAM_ATTR_FAILURE_MODE:
            result.failureMode = found->context->stop_on_failure ? 1 : 0;
            break;
        case ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK: result.overflowSwitch = found->overflow_switch; break;
        case ACL_STREAM_ATTR_USER_CUSTOM_TAG: result.userCustomTag = found->custom_tag; break;
        case ACL_STREAM_ATTR_CACHE_OP_INFO: result.cacheOpInfoSwitch = found->cache_op_info; break;
        case ACL_STREAM_ATTR_PRIORITY: result.streamPriority = found->priority; break;
        default:
            lock.unlock();
            return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtGetStreamAttribute: there is no attribute %d",
                        static_cast<int>(stmAttrType));
    }
    *value = result;
    return 0;
}

}  // extern "C"
