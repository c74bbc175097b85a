// SPDX-License-Identifier: Apache-2.0
// Exception callbacks: one that is set, and a set that is registered.
#pragma once

#include "core/stream.h"

namespace aclsim {

void set_exception_callback(aclrtExceptionInfoCallback callback);
void add_exception_callback(aclrtExceptionInfoCallback callback);
bool remove_exception_callback(aclrtExceptionInfoCallback callback);
// Null for null.
const ExceptionFacts *exception_facts(const aclrtExceptionInfo *info);

}  // namespace aclsim
