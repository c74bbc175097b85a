// SPDX-License-Identifier: Apache-2.0
// fork() and exit() with devices open.
#pragma once

namespace aclsim {

// True in a child forked after the first device was opened: threads are gone and locks may be held for ever.
bool is_forked_child();

// Called when the first device is opened.
void install_process_hooks();

// Makes exit() wait for running work before anything else happens, if the calling thread is the main thread;
// costs next to nothing. Exit handlers alone come too late for work whose library registers destructors of
// static objects while it runs: those are newer, so they go first.
void guard_exit_of_this_thread();

}  // namespace aclsim
