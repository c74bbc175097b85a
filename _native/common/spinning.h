// SPDX-License-Identifier: Apache-2.0
// For locks that are held for a microsecond at most and taken by two busy threads: to sleep, and to be woken up by the
// other one, takes ten times as long as to try again for a while.
#pragma once

#include <pthread.h>

#include <mutex>

namespace common {

// To be called on a mutex that nobody uses yet: there std::mutex is a pthread_mutex_t that needs no destruction, so that it
// may be set up once more.
inline void spin_before_sleep(std::mutex &mutex) {
#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(mutex.native_handle(), &attributes);
    pthread_mutexattr_destroy(&attributes);
#else
    (void)mutex;
#endif
}

}  // namespace common
