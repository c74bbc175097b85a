// SPDX-License-Identifier: Apache-2.0
#include "core/peer.h"

#include <array>
#include <atomic>

#include "core/device.h"

namespace aclsim {

namespace {
using Row = std::array<std::atomic<bool>, max_devices>;
std::array<Row, max_devices> &access_table() {
    static auto *table = new std::array<Row, max_devices>{};
    return *table;
}
}  // namespace

aclError change_peer_access(int32_t peer, bool enable) {
    Context *context = nullptr;
    if (aclError code = working_context(&context)) {
        return code;
    }
    const int32_t device = context->device->id;
    if (device_at(peer) == nullptr) {
        return invalid_device(peer);
    }
    if (device == peer) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "device %d is no peer of itself", peer);
    }
    access_table()[static_cast<size_t>(device)][static_cast<size_t>(peer)].store(enable);
    return 0;
}

bool can_reach(int32_t device, int32_t peer) {
    return device == peer || access_table()[static_cast<size_t>(device)][static_cast<size_t>(peer)].load();
}

}  // namespace aclsim
