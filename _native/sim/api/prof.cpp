// SPDX-License-Identifier: Apache-2.0
// Profiling marks: not simulated; the timeline of aclsim.h shows what ran when.
#include "core/errors.h"
#include "export.h"

using namespace aclsim;

namespace {

aclError unsupported(const char *function) {
    return fail(ACL_ERROR_API_NOT_SUPPORT,
                "%s: the simulator has no profiler; read its timeline with aclsimTimeline", function);
}

}  // namespace

extern "C" {

ACL_EXPORT void *aclprofCreateStamp() {
    ACL_ENTER_OR(aclprofCreateStamp, nullptr);
    unsupported("aclprofCreateStamp");
    return nullptr;
}

ACL_EXPORT aclError aclprofSetStampTraceMessage(void *, const char *, uint32_t) {
    ACL_ENTER(aclprofSetStampTraceMessage);
    return unsupported("aclprofSetStampTraceMessage");
}

ACL_EXPORT aclError aclprofMark(void *) {
    ACL_ENTER(aclprofMark);
    return unsupported("aclprofMark");
}

ACL_EXPORT aclError aclprofPush(void *) {
    ACL_ENTER(aclprofPush);
    return unsupported("aclprofPush");
}

ACL_EXPORT aclError aclprofPop() {
    ACL_ENTER(aclprofPop);
    return unsupported("aclprofPop");
}

ACL_EXPORT aclError aclprofRangeStart(void *, uint32_t *) {
    ACL_ENTER(aclprofRangeStart);
    return unsupported("aclprofRangeStart");
}

ACL_EXPORT aclError aclprofRangeStop(uint32_t) {
    ACL_ENTER(aclprofRangeStop);
    return unsupported("aclprofRangeStop");
}

ACL_EXPORT void aclprofDestroyStamp(void *) {
    ACL_ENTER_OR(aclprofDestroyStamp, );
    unsupported("aclprofDestroyStamp");
}

ACL_EXPORT aclError aclprofMarkEx(const char *, size_t, aclrtStream) {
    ACL_ENTER(aclprofMarkEx);
    return unsupported("aclprofMarkEx");
}

ACL_EXPORT aclError aclrtProfTrace(void *, int32_t, aclrtStream) {
    ACL_ENTER(aclrtProfTrace);
    return unsupported("aclrtProfTrace");
}

}  // extern "C"
