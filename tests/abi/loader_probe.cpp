// SPDX-License-Identifier: Apache-2.0
// Loads each library named on the command line and prints what the loader made of it, one JSON line each.
// `--threads N` before the paths loads the first of them from N threads at once; `--without NAME` before them shows
// each as if it lacked that function.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "loader.h"

namespace {

std::map<const aioascend::Library *, int> numbers;

// Every entry of the table must be the function of that name, and never another one.
bool table_is_right(const aioascend::Library &library) {
    std::set<void *> seen;
    bool right = true;
#define ACL_FUNCTION(name, optional, ret, params, names)                                             \
    if (void *entry = reinterpret_cast<void *>(library.api.name)) {                                  \
        Dl_info info{};                                                                              \
        right = right && dladdr(entry, &info) != 0 && info.dli_sname != nullptr &&                   \
                std::strcmp(info.dli_sname, #name) == 0 && seen.insert(entry).second;                \
        right = right && library.api.has(#name);                                                     \
    } else {                                                                                         \
        right = right && !library.api.has(#name);                                                    \
    }
#include "functions.inc"
#undef ACL_FUNCTION
    return right && !library.api.has("aclNoSuchFunction");
}

void print_list(const char *key, const std::vector<std::string> &names) {
    std::printf(", \"%s\": [", key);
    for (size_t i = 0; i < names.size(); ++i) {
        std::printf("%s\"%s\"", i == 0 ? "" : ", ", names[i].c_str());
    }
    std::printf("]");
}

void report(const std::string &path, const std::vector<std::string> &without) {
    std::string error = "left over";
    const aioascend::Library *library = aioascend::load_library(path, error);
    if (library != nullptr && !without.empty()) {
        library = aioascend::library_without(*library, without, error);
    }
    if (library == nullptr) {
        std::printf("{\"error\": \"%s\"}\n", error.c_str());
        return;
    }
    const int number = numbers.emplace(library, static_cast<int>(numbers.size())).first->second;
    std::printf("{\"path\": \"%s\", \"number\": %d, \"table_is_right\": %s, \"error\": \"%s\"",
                library->path.c_str(), number, table_is_right(*library) ? "true" : "false", error.c_str());
    print_list("missing_required", library->missing_required);
    print_list("missing_optional", library->missing_optional);
    std::printf(", \"can\": {");
    bool first = true;
    for (const auto &[name, present] : library->can.list()) {
        std::printf("%s\"%s\": %s", first ? "" : ", ", name, present ? "true" : "false");
        first = false;
    }
    std::printf("}}\n");
}

void load_at_once(const std::string &path, int count) {
    std::vector<const aioascend::Library *> results(count);
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) {
        threads.emplace_back([&, i] {
            std::string error;
            results[i] = aioascend::load_library(path, error);
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    const std::set<const aioascend::Library *> distinct(results.begin(), results.end());
    std::printf("{\"distinct\": %zu, \"loaded\": %s}\n", distinct.size(),
                *distinct.begin() != nullptr ? "true" : "false");
}

}  // namespace

int main(int argc, char **argv) {
    int first = 1;
    std::vector<std::string> without;
    for (; argc > first + 1 && std::strcmp(argv[first], "--without") == 0; first += 2) {
        without.emplace_back(argv[first + 1]);
    }
    if (argc > 3 && std::strcmp(argv[1], "--threads") == 0) {
        load_at_once(argv[3], std::stoi(argv[2]));
        first = 4;
    }
    for (int i = first; i < argc; ++i) {
        report(argv[i], without);
    }
    return 0;
}
