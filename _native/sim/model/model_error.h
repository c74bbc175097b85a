// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <new>
#include <stdexcept>
#include <string>

#include "acl/acl.h"
#include "core/errors.h"

namespace aclsim {

// A failure with the code that the ACL call, or the task, is to return.
class ModelError : public std::runtime_error {
public:
    ModelError(aclError error_code, const std::string &message)
        : std::runtime_error(message), code(error_code) {}
    const aclError code;
};

// The border between code that throws and the C ABI: what `body` returns, or the code of what it threw.
template <class Body>
aclError guarded(Body &&body) {
    try {
        return body();
    } catch (const ModelError &error) {
        return fail(error.code, "%s", error.what());
    } catch (const std::bad_alloc &) {
        return fail(ACL_ERROR_BAD_ALLOC, "out of host memory");
    } catch (const std::exception &error) {
        return fail(ACL_ERROR_INTERNAL_ERROR, "%s", error.what());
    }
}

}  // namespace aclsim
