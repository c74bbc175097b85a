// SPDX-License-Identifier: Apache-2.0
// How control calls find what they are told about. They need no context and work on lost devices.
#pragma once

#include "core/device.h"

namespace aclsim {

// 107000 with a message for NULL or anything that is no live stream.
aclError control_stream(const char *function, void *handle, Stream **out);
// A device that exists; `all` = -1 is accepted, too, and gives null.
aclError control_device(const char *function, int32_t id, bool all, Device **out);

template <class Action>
aclError each_device(const char *function, int32_t id, Action action) {
    Device *one = nullptr;
    if (aclError code = control_device(function, id, true, &one)) {
        return code;
    }
    for (int32_t i = 0; i < device_count(); ++i) {
        Device *device = device_at(i);
        if (one == nullptr || device == one) {
            Lock lock(device->mutex);
            action(*device);
        }
    }
    return 0;
}

}  // namespace aclsim
