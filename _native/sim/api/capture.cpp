// SPDX-License-Identifier: Apache-2.0
// Graph capture and replay: not simulated.
#include "core/errors.h"
#include "export.h"

using namespace aclsim;

namespace {

aclError unsupported(const char *function) {
    return fail(ACL_ERROR_API_NOT_SUPPORT,
                "%s: the simulator has no graph capture; launch the tasks directly", function);
}

}  // namespace

extern "C" {

ACL_EXPORT aclError aclmdlRICaptureBegin(aclrtStream, aclmdlRICaptureMode) {
    ACL_ENTER(aclmdlRICaptureBegin);
    return unsupported("aclmdlRICaptureBegin");
}

ACL_EXPORT aclError aclmdlRICaptureEnd(aclrtStream, aclmdlRI *) {
    ACL_ENTER(aclmdlRICaptureEnd);
    return unsupported("aclmdlRICaptureEnd");
}

ACL_EXPORT aclError aclmdlRICaptureGetInfo(aclrtStream, aclmdlRICaptureStatus *, aclmdlRI *) {
    ACL_ENTER(aclmdlRICaptureGetInfo);
    return unsupported("aclmdlRICaptureGetInfo");
}

ACL_EXPORT aclError aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode *) {
    ACL_ENTER(aclmdlRICaptureThreadExchangeMode);
    return unsupported("aclmdlRICaptureThreadExchangeMode");
}

ACL_EXPORT aclError aclmdlRICaptureTaskGrpBegin(aclrtStream) {
    ACL_ENTER(aclmdlRICaptureTaskGrpBegin);
    return unsupported("aclmdlRICaptureTaskGrpBegin");
}

ACL_EXPORT aclError aclmdlRICaptureTaskGrpEnd(aclrtStream, aclrtTaskGrp *) {
    ACL_ENTER(aclmdlRICaptureTaskGrpEnd);
    return unsupported("aclmdlRICaptureTaskGrpEnd");
}

ACL_EXPORT aclError aclmdlRICaptureTaskUpdateBegin(aclrtStream, aclrtTaskGrp) {
    ACL_ENTER(aclmdlRICaptureTaskUpdateBegin);
    return unsupported("aclmdlRICaptureTaskUpdateBegin");
}

ACL_EXPORT aclError aclmdlRICaptureTaskUpdateEnd(aclrtStream) {
    ACL_ENTER(aclmdlRICaptureTaskUpdateEnd);
    return unsupported("aclmdlRICaptureTaskUpdateEnd");
}

ACL_EXPORT aclError aclmdlRIExecute(aclmdlRI, int32_t) {
    ACL_ENTER(aclmdlRIExecute);
    return unsupported("aclmdlRIExecute");
}

ACL_EXPORT aclError aclmdlRIExecuteAsync(aclmdlRI, aclrtStream) {
    ACL_ENTER(aclmdlRIExecuteAsync);
    return unsupported("aclmdlRIExecuteAsync");
}

ACL_EXPORT aclError aclmdlRIAbort(aclmdlRI) {
    ACL_ENTER(aclmdlRIAbort);
    return unsupported("aclmdlRIAbort");
}

ACL_EXPORT aclError aclmdlRIDestroy(aclmdlRI) {
    ACL_ENTER(aclmdlRIDestroy);
    return unsupported("aclmdlRIDestroy");
}

ACL_EXPORT aclError aclmdlRIDestroyRegisterCallback(aclmdlRI, aclrtCallback, void *) {
    ACL_ENTER(aclmdlRIDestroyRegisterCallback);
    return unsupported("aclmdlRIDestroyRegisterCallback");
}

ACL_EXPORT aclError aclmdlRIDestroyUnregisterCallback(aclmdlRI, aclrtCallback) {
    ACL_ENTER(aclmdlRIDestroyUnregisterCallback);
    return unsupported("aclmdlRIDestroyUnregisterCallback");
}

ACL_EXPORT aclError aclmdlRISetName(aclmdlRI, const char *) {
    ACL_ENTER(aclmdlRISetName);
    return unsupported("aclmdlRISetName");
}

ACL_EXPORT aclError aclmdlRIGetName(aclmdlRI, uint32_t, char *) {
    ACL_ENTER(aclmdlRIGetName);
    return unsupported("aclmdlRIGetName");
}

ACL_EXPORT aclError aclmdlRIGetStreams(aclmdlRI, aclrtStream *, uint32_t *) {
    ACL_ENTER(aclmdlRIGetStreams);
    return unsupported("aclmdlRIGetStreams");
}

ACL_EXPORT aclError aclmdlRIDebugJsonPrint(aclmdlRI, const char *, uint32_t) {
    ACL_ENTER(aclmdlRIDebugJsonPrint);
    return unsupported("aclmdlRIDebugJsonPrint");
}

}  // extern "C"
