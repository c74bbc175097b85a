// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/stream.h"

namespace aclsim {

// The stream a handle names in the given context (NULL = its default stream); it may belong to another
// context.
aclError find_stream(aclrtStream handle, Context &context, Stream **out);

// Appends the entry; codes recorded. The caller keeps what the entry refers to when it is refused.
aclError submit_entry(Stream &stream, const Entry &entry);

// Runs the entry on a hidden stream of the context and waits for it. Takes ownership of a Custom entry's
// Task.
aclError run_entry(Context &context, const Entry &entry);

// An asynchronous copy with pageable host memory. As the real runtime does it: synchronise the stream, which
// takes and returns the error of earlier tasks, then copy at once. Or, as an old driver did: launch it and
// hope.
aclError run_pageable(Stream &stream, const Entry &entry);
aclError run_pageable(Stream &stream, Task &&task);

// In words, why a call on a stream did not do what it was asked.
const char *explain_blocked(aclError code);

}  // namespace aclsim
