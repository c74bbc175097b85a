// SPDX-License-Identifier: Apache-2.0
// For debug mode: a library that says when a function is called that may block.
#pragma once

#include "loader.h"

namespace aioascend {

using BlockingCallObserver = void (*)(const char *function);

// The same library, except that the observer is called before each call of a function that may block, on the thread
// that calls it. One observer per process. The same library gives the same result each time; it is valid until the
// process ends. A process that has loaded very many libraries gets the last ones back as they are.
const Library *observe_blocking_calls(const Library &library, BlockingCallObserver observer);

}  // namespace aioascend
