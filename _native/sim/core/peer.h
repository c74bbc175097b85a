// SPDX-License-Identifier: Apache-2.0
// Which device may reach which other one's memory.
#pragma once

#include "core/task.h"

namespace aclsim {

// From the current context's device to the peer; one direction.
aclError change_peer_access(int32_t peer, bool enable);
bool can_reach(int32_t device, int32_t peer);

}  // namespace aclsim
