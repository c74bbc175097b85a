// SPDX-License-Identifier: Apache-2.0
// fork() and exit() with devices open.
#pragma once

namespace aclsim {

// True in a child forked after the first device was opened: threads are gone and locks may be held for ever.
bool is_forked_child();

// Called when the first device is opened.
void install_process_hooks();


}  // namespace aclsim
