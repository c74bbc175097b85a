// SPDX-License-Identifier: Apache-2.0
// Loads a library that speaks the AscendCL C ABI and hands out its functions as one table.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "acl/acl.h"

namespace aioascend {

// One pointer per function of functions.inc, by its own name; null where the library does not have it.
struct AclApi {
#define ACL_FUNCTION(name, optional, ret, params, names) ret(*name) params = nullptr;
#include "functions.inc"
#undef ACL_FUNCTION

    // Whether the library exports the function; false for a name that is not in the table.
    bool has(const char *function) const;
};

// What a library can do, derived from the functions it exports: version numbers do not tell releases apart.
struct Capabilities {
#define ACL_CAPABILITY(name, ...) bool name = false;
#include "capabilities.inc"
#undef ACL_CAPABILITY

    static Capabilities of(const AclApi &api);
    // Each capability by name, in the order of capabilities.inc.
    std::vector<std::pair<const char *, bool>> list() const;
};

struct Library {
    std::string path;  // of the file that was loaded, links resolved
    AclApi api;
    Capabilities can;
    std::vector<std::string> missing_required;  // empty for what load_library returns
    std::vector<std::string> missing_optional;
    void *handle = nullptr;

    // Zeros, and null, where the library does not tell. Both may block.
    void version(int32_t &major, int32_t &minor, int32_t &patch) const;
    const char *soc_name() const;
};

// Loads the library at `path` (a file, or a bare name for the dynamic linker's own search) and looks all
// functions up: in it and its dependencies, then in libacl_rt.so and libacl_mdl.so beside it or, for a library
// that is only a shell around them, wherever the dynamic linker finds them.
//
// Returns null and sets `error` when the file cannot be loaded or lacks a function that the runtime needs.
// The same file gives the same Library each time; it stays loaded, and the pointer valid, until the process ends.
// Safe to call from several threads. Loading runs the library's constructors, so it may block.
const Library *load_library(const std::string &path, std::string &error);

// The same library as if it lacked some functions: how an older release looks to the runtime. Returns null and
// sets `error` for a name that is not in the table or that the runtime cannot do without. Stays valid until the
// process ends.
const Library *library_without(const Library &library, const std::vector<std::string> &functions,
                               std::string &error);

}  // namespace aioascend
