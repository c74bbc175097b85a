// SPDX-License-Identifier: Apache-2.0
// A small test harness: TEST(name) { ... CHECK(...); } and a main. `program` runs all tests, `program
// name...` some, `program --list` names them.
#pragma once

#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "aclsim.h"

namespace check {

struct Case {
    const char *name;
    void (*run)();
};

inline std::vector<Case> &cases() {
    static std::vector<Case> all;
    return all;
}

struct Registration {
    Registration(const char *name, void (*run)()) { cases().push_back({name, run}); }
};

[[noreturn]] inline void failed(const char *file, int line, const std::string &what) {
    throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + what);
}

template <class A, class B>
void equal(const char *file, int line, const char *text, const A &actual, const B &expected) {
    if (!(actual == expected)) {
        std::ostringstream out;
        out << text << " is " << actual << ", expected " << expected;
        failed(file, line, out.str());
    }
}

inline void code(const char *file, int line, const char *text, int actual, int expected) {
    if (actual != expected) {
        const char *message = aclGetRecentErrMsg();
        failed(file, line,
               std::string(text) + " returned " + std::to_string(actual) + ", expected " +
                   std::to_string(expected) + (message == nullptr ? "" : std::string("; ") + message));
    }
}

inline int run(int argc, char **argv) {
    int bad = 0;
    for (const Case &one : cases()) {
        bool wanted = argc == 1;
        for (int i = 1; i < argc; ++i) {
            wanted = wanted || std::strcmp(argv[i], one.name) == 0;
        }
        if (argc == 2 && std::strcmp(argv[1], "--list") == 0) {
            std::printf("%s\n", one.name);
            continue;
        }
        if (!wanted) {
            continue;
        }
        aclsimReset();
        try {
            one.run();
            std::printf("ok   %s\n", one.name);
        } catch (const std::exception &problem) {
            std::printf("FAIL %s: %s\n", one.name, problem.what());
            ++bad;
        }
        std::fflush(stdout);
    }
    return bad == 0 ? 0 : 1;
}

}  // namespace check

#define TEST(name)                                                     \
    static void name();                                                \
    static const check::Registration registration_##name(#name, name); \
    static void name()

#define CHECK(condition)                                                \
    do {                                                                \
        if (!(condition)) {                                             \
            check::failed(__FILE__, __LINE__, "not true: " #condition); \
        }                                                               \
    } while (false)
#define CHECK_EQ(actual, expected) check::equal(__FILE__, __LINE__, #actual, actual, expected)
#define CHECK_CODE(call, expected) check::code(__FILE__, __LINE__, #call, call, expected)
#define OK(call) CHECK_CODE(call, 0)
