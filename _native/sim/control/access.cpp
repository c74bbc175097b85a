// SPDX-License-Identifier: Apache-2.0
#include "control/access.h"

namespace aclsim {

aclError control_stream(const char *function, void *handle, Stream **out) {
    *out = stream_table().find(handle);
    return *out != nullptr ? 0
                           : fail_quietly(ACL_ERROR_RT_PARAM_INVALID,
                                          "%s: %p is no live stream; for a default stream ask "
                                          "aclrtCtxGetCurrentDefaultStream",
                                          function, handle);
}

aclError control_device(const char *function, int32_t id, bool all, Device **out) {
    *out = device_at(id);
    if (*out != nullptr || (all && id == -1)) {
        return 0;
    }
    return fail_quietly(ACL_ERROR_RT_PARAM_INVALID, "%s: there is no device %d; ids are 0 to %d%s", function,
                        id, device_count() - 1, all ? ", -1 means all" : "");
}

}  // namespace aclsim
