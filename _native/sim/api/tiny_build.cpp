// SPDX-License-Identifier: Apache-2.0
// Functions that the data-centre libraries declare but do not implement.
#include "core/errors.h"
#include "export.h"

using namespace aclsim;

namespace {

aclError unsupported(const char *function) {
    return fail(ACL_ERROR_API_NOT_SUPPORT,
                "%s: only the runtime of small chips has this call; use aclrtSubscribeReport or "
                "aclrtCreateStreamWithConfig",
                function);
}

}  // namespace

extern "C" {

ACL_EXPORT aclError aclrtSubscribeHostFunc(uint64_t, aclrtStream) {
    ACL_ENTER(aclrtSubscribeHostFunc);
    return unsupported("aclrtSubscribeHostFunc");
}

ACL_EXPORT aclError aclrtProcessHostFunc(int32_t) {
    ACL_ENTER(aclrtProcessHostFunc);
    return unsupported("aclrtProcessHostFunc");
}

ACL_EXPORT aclError aclrtUnSubscribeHostFunc(uint64_t, aclrtStream) {
    ACL_ENTER(aclrtUnSubscribeHostFunc);
    return unsupported("aclrtUnSubscribeHostFunc");
}

ACL_EXPORT aclrtStreamConfigHandle *aclrtCreateStreamConfigHandle() {
    ACL_ENTER_OR(aclrtCreateStreamConfigHandle, nullptr);
    unsupported("aclrtCreateStreamConfigHandle");
    return nullptr;
}

ACL_EXPORT aclError aclrtSetStreamConfigOpt(aclrtStreamConfigHandle *, aclrtStreamConfigAttr, const void *,
                                            size_t) {
    ACL_ENTER(aclrtSetStreamConfigOpt);
    return unsupported("aclrtSetStreamConfigOpt");
}

ACL_EXPORT aclError aclrtCreateStreamV2(aclrtStream *, const aclrtStreamConfigHandle *) {
    ACL_ENTER(aclrtCreateStreamV2);
    return unsupported("aclrtCreateStreamV2");
}

ACL_EXPORT aclError aclrtDestroyStreamConfigHandle(aclrtStreamConfigHandle *) {
    ACL_ENTER(aclrtDestroyStreamConfigHandle);
    return unsupported("aclrtDestroyStreamConfigHandle");
}

}  // extern "C"
