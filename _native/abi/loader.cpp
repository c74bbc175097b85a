// SPDX-License-Identifier: Apache-2.0
#include "loader.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>

namespace aioascend {
namespace {

struct Function {
    const char *name;
    bool optional;
    bool (*present)(const AclApi &);
    void (*assign)(AclApi &, void *);
};

const Function functions[] = {
#define ACL_FUNCTION(name, optional, ret, params, names)                     \
    {#name, optional != 0, [](const AclApi &api) { return api.name != nullptr; }, \
     [](AclApi &api, void *symbol) { api.name = reinterpret_cast<decltype(api.name)>(symbol); }},
#include "functions.inc"
#undef ACL_FUNCTION
};

const Function *find(const std::string &name) {
    for (const Function &function : functions) {
        if (name == function.name) {
            return &function;
        }
    }
    return nullptr;
}

// Newer CANN releases keep the functions in these; `witness` tells whether a library already brings them.
struct Sibling {
    const char *soname;
    const char *witness;
};

constexpr Sibling siblings[] = {
    {"libacl_rt.so", "aclrtSetDevice"},
    {"libacl_mdl.so", "aclmdlLoadFromFile"},
};

// Fills the gaps of the table from one loaded library. Returns how many functions it found.
size_t take_symbols(AclApi &api, void *handle) {
    size_t found = 0;
    for (const Function &function : functions) {
        if (function.present(api)) {
            continue;
        }
        if (void *symbol = dlsym(handle, function.name)) {
            function.assign(api, symbol);
            ++found;
        }
    }
    return found;
}

// How many bytes are missing at the end of a library that was copied in part only. The dynamic linker maps such a file
// and dies of SIGBUS where there is nothing behind the map. What is no such file is left to the linker to refuse.
uint64_t missing_bytes(const std::string &path) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    const std::streamoff end = file.tellg();
    const uint64_t size = end > 0 ? static_cast<uint64_t>(end) : 0;
    ElfW(Ehdr) header{};
    file.seekg(0);
    if (!file.read(reinterpret_cast<char *>(&header), sizeof header) ||
        std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phentsize != sizeof(ElfW(Phdr))) {
        return 0;
    }
    uint64_t needed = header.e_phoff + header.e_phnum * sizeof(ElfW(Phdr));
    file.seekg(static_cast<std::streamoff>(header.e_phoff));
    for (unsigned i = 0; i < header.e_phnum; ++i) {
        ElfW(Phdr) segment{};
        if (!file.read(reinterpret_cast<char *>(&segment), sizeof segment)) {
            break;
        }
        if (segment.p_type == PT_LOAD) {
            needed = std::max<uint64_t>(needed, segment.p_offset + segment.p_filesz);
        }
    }
    return needed > size ? needed - size : 0;
}

std::string real_path(void *handle, const std::string &fallback) {
    link_map *map = nullptr;
    const char *loaded = fallback.c_str();
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && map->l_name[0] != '\0') {
        loaded = map->l_name;
    }
    char resolved[PATH_MAX];
    return realpath(loaded, resolved) != nullptr ? resolved : loaded;
}

void take_from_siblings(Library &library) {
    const std::string folder = library.path.substr(0, library.path.rfind('/') + 1);
    for (const Sibling &sibling : siblings) {
        void *handle = dlopen((folder + sibling.soname).c_str(), RTLD_NOW | RTLD_LOCAL);
        // A complete library is never topped up from some other installation: their versions may differ.
        if (handle == nullptr && !library.api.has(sibling.witness)) {
            handle = dlopen(sibling.soname, RTLD_NOW | RTLD_LOCAL);
        }
        if (handle != nullptr) {
            take_symbols(library.api, handle);
        }
    }
}

std::string join(const std::vector<std::string> &names) {
    std::string out;
    for (const std::string &name : names) {
        out += (out.empty() ? "" : ", ") + name;
    }
    return out;
}

std::unique_ptr<Library> open_library(void *handle, const std::string &path, std::string &error) {
    auto library = std::make_unique<Library>();
    library->handle = handle;
    library->path = path;
    take_symbols(library->api, handle);
    take_from_siblings(*library);

    bool any = false;
    for (const Function &function : functions) {
        if (function.present(library->api)) {
            any = true;
        } else {
            (function.optional ? library->missing_optional : library->missing_required)
                .emplace_back(function.name);
        }
    }
    if (!any) {
        error = "'" + path + "' is not an AscendCL library: it exports none of its functions (aclInit, "
                "aclrtSetDevice, ...); give the path of libascendcl.so";
        return nullptr;
    }
    if (!library->missing_required.empty()) {
        error = "'" + path + "' lacks functions that aioascend needs: " + join(library->missing_required) +
                "; use a complete CANN installation, or the simulator";
        return nullptr;
    }
    library->can = Capabilities::of(library->api);
    return library;
}

}  // namespace

bool AclApi::has(const char *function) const {
    const Function *entry = find(function);
    return entry != nullptr && entry->present(*this);
}

Capabilities Capabilities::of(const AclApi &api) {
    const auto all = [](std::initializer_list<bool> needs) {
        for (bool need : needs) {
            if (!need) {
                return false;
            }
        }
        return true;
    };
    Capabilities can;
#define ACL_NEEDS(function) api.function != nullptr
#define ACL_CAPABILITY(name, ...) can.name = all({__VA_ARGS__});
#include "capabilities.inc"
#undef ACL_CAPABILITY
#undef ACL_NEEDS
    return can;
}

std::vector<std::pair<const char *, bool>> Capabilities::list() const {
    return {
#define ACL_CAPABILITY(name, ...) {#name, name},
#include "capabilities.inc"
#undef ACL_CAPABILITY
    };
}

void Library::version(int32_t &major, int32_t &minor, int32_t &patch) const {
    major = minor = patch = 0;
    if (api.aclrtGetVersion != nullptr) {
        api.aclrtGetVersion(&major, &minor, &patch);
    }
}

const char *Library::soc_name() const {
    api.aclInit(nullptr);  // that it was initialised before is no failure
    return api.aclrtGetSocName != nullptr ? api.aclrtGetSocName() : nullptr;
}

const Library *load_library(const std::string &path, std::string &error) {
    // Both leaked: threads of a loaded library may outlive static destruction.
    static auto &mutex = *new std::mutex;
    static auto &loaded = *new std::map<std::string, std::unique_ptr<Library>>;

    error.clear();
    if (path.empty()) {
        error = "the path of the AscendCL library is empty; give the path of libascendcl.so";
        return nullptr;
    }
    std::lock_guard<std::mutex> lock(mutex);
    if (const uint64_t missing = missing_bytes(path)) {
        error = "'" + path + "' is cut off, " + std::to_string(missing) + " bytes are missing; copy it again";
        return nullptr;
    }
    void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        const char *reason = dlerror();  // begins with the name of the file that is at fault
        error = std::string("cannot load an AscendCL library: ") + (reason != nullptr ? reason : path.c_str());
        return nullptr;
    }
    const std::string key = real_path(handle, path);
    const auto known = loaded.find(key);
    if (known != loaded.end()) {
        return known->second.get();
    }
    std::unique_ptr<Library> library = open_library(handle, key, error);
    return library ? (loaded[key] = std::move(library)).get() : nullptr;
}

const Library *library_without(const Library &library, const std::vector<std::string> &functions,
                               std::string &error) {
    error.clear();
    auto reduced = std::make_unique<Library>(library);
    for (const std::string &name : functions) {
        const Function *function = find(name);
        if (function == nullptr || !function->optional) {
            error = "cannot do without '" + name + "': " + (function ? "it is required" : "it is not an ACL function");
            return nullptr;
        }
        if (function->present(reduced->api)) {
            function->assign(reduced->api, nullptr);
            reduced->missing_optional.push_back(name);
        }
    }
    reduced->can = Capabilities::of(reduced->api);
    return reduced.release();
}

}  // namespace aioascend
