// SPDX-License-Identifier: Apache-2.0
// Tests that fork, exit or abort: each runs a body in a fresh image of its own program, because a fork of a process
// with devices cannot use them.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "check.h"

namespace child {

constexpr char body_variable[] = "ACLSIM_TEST_BODY";

struct Body {
    const char *name;
    void (*run)();
};

// To be called before main, so that nothing of the harness has used a device: runs the body that is asked for.
inline bool run_body(const std::vector<Body> &bodies) {
    const char *wanted = std::getenv(body_variable);
    for (const Body &body : bodies) {
        if (wanted != nullptr && std::string(wanted) == body.name) {
            alarm(60);
            body.run();
            std::exit(96);
        }
    }
    return false;
}

// The exit status of the body, or minus the signal that ended it. What it writes to stderr is kept, or shown.
inline int run_self(const char *body, std::string *errors = nullptr) {
    int pipe_ends[2];
    CHECK(pipe(pipe_ends) == 0);
    char program[4096];  // and not /proc/self/exe itself, which under valgrind is valgrind
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    CHECK(length > 0);
    program[length] = '\0';
    const pid_t process = fork();
    CHECK(process >= 0);
    if (process == 0) {
        dup2(pipe_ends[1], STDERR_FILENO);
        close(pipe_ends[0]);
        setenv(body_variable, body, 1);
        execl(program, program, static_cast<char *>(nullptr));
        _exit(99);
    }
    close(pipe_ends[1]);
    char buffer[4096];
    std::string text;
    for (ssize_t n; (n = read(pipe_ends[0], buffer, sizeof buffer)) > 0;) {
        text.append(buffer, static_cast<size_t>(n));
    }
    close(pipe_ends[0]);
    int status = 0;
    CHECK(waitpid(process, &status, 0) == process);
    if (errors != nullptr) {
        *errors = text;
    } else if (!text.empty()) {
        std::printf("%s", text.c_str());
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

inline void need(int code) {
    if (code != 0) {
        _exit(98);
    }
}

}  // namespace child
