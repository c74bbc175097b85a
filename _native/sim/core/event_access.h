// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/stream.h"

namespace aclsim {

// 100000 for NULL, 107017 for anything that is no live event; recorded.
aclError find_event(aclrtEvent handle, Event **out);

}  // namespace aclsim
