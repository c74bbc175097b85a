// SPDX-License-Identifier: Apache-2.0
// fork, exit and strict mode, each in a child process of its own.
#include <fstream>

#include "child.h"
#include "scene.h"

using child::need;
using child::run_self;

namespace {

void sleepless_callback(void *) {}

void exit_with_queued_work() {
    need(aclrtSetDevice(0));
    need(aclrtSetDevice(1));
    need(aclsimSetProfile(-1, "inference-card"));
    aclrtStream stream = nullptr;
    void *device = nullptr, *host = nullptr;
    need(aclrtCreateStream(&stream));
    need(aclrtMalloc(&device, 64 << 20, ACL_MEM_MALLOC_HUGE_FIRST));
    need(aclrtMallocHost(&host, 64 << 20));
    for (int i = 0; i < 200; ++i) {
        need(aclrtMemcpyAsync(device, 64 << 20, host, 64 << 20, ACL_MEMCPY_HOST_TO_DEVICE, stream));
        need(aclrtLaunchHostFunc(stream, sleepless_callback, nullptr));
    }
    std::exit(0);
}

void exit_in_a_callback() {
    need(aclrtSetDevice(0));
    need(aclrtLaunchHostFunc(nullptr, [](void *) { std::exit(0); }, nullptr));
    aclrtSynchronizeStream(nullptr);
    pause();
}

// Destroyed after the simulator's exit handler has run, because it was made before that was registered.
struct BeforeEverything {
    bool armed = false;
    ~BeforeEverything() {
        if (armed) {
            const int code = aclrtSynchronizeStream(nullptr);
            _exit(code == ACL_ERROR_RT_INTERNAL_ERROR ? 7 : 8);
        }
    }
} before_everything;

void fork_after_use() {
    need(aclrtSetDevice(0));
    aclrtStream stream = nullptr;
    need(aclrtCreateStream(&stream));
    // The device's threads have begun, and are idle again: the allocators of sanitizers do not survive a fork in use.
    void *memory = nullptr;
    need(aclsimSetProfile(-1, "inference-card"));
    need(aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    need(aclrtMemsetAsync(memory, 64, 0, 64, stream));
    need(aclrtSynchronizeStream(stream));
    const pid_t child = fork();
    if (child == 0) {
        alarm(30);
        void *p = nullptr;
        uint32_t count = 0;
        const bool poisoned = aclrtSetDevice(0) == ACL_ERROR_RT_INTERNAL_ERROR &&
                              aclrtSynchronizeStream(stream) == ACL_ERROR_RT_INTERNAL_ERROR &&
                              aclrtMalloc(&p, 8, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_RT_INTERNAL_ERROR &&
                              aclrtGetDeviceCount(&count) == ACL_ERROR_RT_INTERNAL_ERROR &&
                              aclrtGetSocName() == nullptr;
        std::exit(poisoned ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    need(aclrtSynchronizeStream(stream));
    std::exit(WIFEXITED(status) ? WEXITSTATUS(status) : 97);
}

void fork_before_use() {
    const pid_t child = fork();
    if (child == 0) {
        need(aclrtSetDevice(0));
        need(aclrtSynchronizeStream(nullptr));
        std::exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    std::exit(WIFEXITED(status) ? WEXITSTATUS(status) : 97);
}

void acl_call_in_a_strict_callback() {
    need(aclrtSetDevice(0));
    need(aclsimSetStrict(1));
    need(aclrtLaunchHostFunc(
        nullptr,
        [](void *) {
            int32_t device = 0;
            aclrtGetDevice(&device);
        },
        nullptr));
    aclrtSynchronizeStream(nullptr);
    std::exit(0);
}

void strict_free_in_flight() {
    need(aclrtSetDevice(0));
    need(aclsimSetStrict(1));
    void *device = nullptr;
    aclrtStream stream = nullptr;
    need(aclrtMalloc(&device, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    need(aclrtCreateStream(&stream));
    need(aclsimHoldStream(stream));
    need(aclrtMemsetAsync(device, 64, 0, 64, stream));
    aclrtFree(device);
    std::exit(0);
}

int init_with(const char *text) {
    const std::string path = "/tmp/aclsim_config_" + std::to_string(getpid());
    std::ofstream(path) << text;
    const int code = aclInit(path.c_str());
    unlink(path.c_str());
    return code;
}

void configured() {
    need(init_with("{\"err_msg_mode\": \"1\", \"defaultDevice\": {\"default_device\": \"1\"}}"));
    int32_t device = -1;
    need(aclrtGetDevice(&device));
    if (device != 1) {
        std::exit(2);
    }
    std::thread([] { aclrtSetDevice(77); }).join();
    const char *message = aclGetRecentErrMsg();
    std::exit(message != nullptr && std::strstr(message, "77") != nullptr ? 0 : 3);
}

void badly_configured() {
    const std::pair<const char *, int> files[] = {
        {"{\"err_msg_mode\": ", ACL_ERROR_PARSE_FILE},
        {"[1]", ACL_ERROR_PARSE_FILE},
        {"{\"err_msg_mode\": \"2\"}", ACL_ERROR_INVALID_PARAM},
        {"{\"defaultDevice\": {\"default_device\": \"9x\"}}", ACL_ERROR_INVALID_PARAM},
        {"{}", 0}};
    for (const auto &[text, code] : files) {
        if (init_with(text) != code) {
            std::exit(1);
        }
    }
    std::exit(0);
}

void call_after_exit() {
    need(aclrtSetDevice(0));
    before_everything.armed = true;
    std::exit(0);
}

const bool ran_body = child::run_body({{"exit_with_queued_work", exit_with_queued_work},
                                       {"exit_in_a_callback", exit_in_a_callback},
                                       {"call_after_exit", call_after_exit},
                                       {"fork_after_use", fork_after_use},
                                       {"fork_before_use", fork_before_use},
                                       {"acl_call_in_a_strict_callback", acl_call_in_a_strict_callback},
                                       {"strict_free_in_flight", strict_free_in_flight},
                                       {"configured", configured},
                                       {"badly_configured", badly_configured}});

}  // namespace

TEST(exit_with_work_running) { CHECK_EQ(run_self("exit_with_queued_work"), 0); }

TEST(exit_inside_a_callback) { CHECK_EQ(run_self("exit_in_a_callback"), 0); }

TEST(calls_after_exit_return) { CHECK_EQ(run_self("call_after_exit"), 7); }

TEST(a_forked_child_is_refused) { CHECK_EQ(run_self("fork_after_use"), 0); }

TEST(fork_before_the_first_use_is_fine) { CHECK_EQ(run_self("fork_before_use"), 0); }

TEST(strict_mode_finds_calls_in_callbacks) {
    std::string errors;
    CHECK_EQ(run_self("acl_call_in_a_strict_callback", &errors), -SIGABRT);
    CHECK(errors.find("aclrtGetDevice was called inside a stream callback") != std::string::npos);
}

TEST(strict_mode_finds_memory_in_use) {
    std::string errors;
    CHECK_EQ(run_self("strict_free_in_flight", &errors), -SIGABRT);
    CHECK(errors.find("aclrtFree") != std::string::npos);
}

TEST(the_configuration_of_init) { CHECK_EQ(run_self("configured"), 0); }

TEST(bad_configurations_are_refused) { CHECK_EQ(run_self("badly_configured"), 0); }
