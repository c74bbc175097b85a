// SPDX-License-Identifier: Apache-2.0
#include "blocking.h"

#include <array>
#include <atomic>
#include <mutex>
#include <utility>

// What may wait for the device or its driver, for files, or for other threads. Not here: what only puts a task into
// a stream, which waits for room in a full queue alone, and the queries of streams and events, which never wait.
#define AIOASCEND_BLOCKING_FUNCTIONS \
    OBSERVE(aclInit) OBSERVE(aclFinalize) OBSERVE(aclFinalizeReference) OBSERVE(aclrtGetDeviceCount) \
    OBSERVE(aclrtSetDevice) OBSERVE(aclrtResetDevice) OBSERVE(aclrtResetDeviceForce) \
    OBSERVE(aclrtSynchronizeDevice) OBSERVE(aclrtSynchronizeDeviceWithTimeout) \
    OBSERVE(aclrtQueryDeviceStatus) OBSERVE(aclrtDeviceTaskAbort) OBSERVE(aclrtGetDeviceUtilizationRate) \
    OBSERVE(aclrtCreateContext) OBSERVE(aclrtDestroyContext) OBSERVE(aclrtCreateStream) \
    OBSERVE(aclrtCreateStreamWithConfig) OBSERVE(aclrtCreateStreamV2) OBSERVE(aclrtDestroyStream) \
    OBSERVE(aclrtDestroyStreamForce) OBSERVE(aclrtSynchronizeStream) \
    OBSERVE(aclrtSynchronizeStreamWithTimeout) OBSERVE(aclrtStreamAbort) OBSERVE(aclrtStreamStop) \
    OBSERVE(aclrtSubscribeReport) OBSERVE(aclrtUnSubscribeReport) OBSERVE(aclrtProcessReport) \
    OBSERVE(aclrtSubscribeHostFunc) OBSERVE(aclrtUnSubscribeHostFunc) OBSERVE(aclrtProcessHostFunc) \
    OBSERVE(aclrtLaunchHostFunc) OBSERVE(aclrtSynchronizeEvent) OBSERVE(aclrtSynchronizeEventWithTimeout) \
    OBSERVE(aclrtMalloc) OBSERVE(aclrtMallocWithCfg) OBSERVE(aclrtFree) OBSERVE(aclrtFreeWithDevSync) \
    OBSERVE(aclrtMallocHost) OBSERVE(aclrtMallocHostWithCfg) OBSERVE(aclrtFreeHost) \
    OBSERVE(aclrtFreeHostWithDevSync) OBSERVE(aclrtHostRegister) OBSERVE(aclrtHostRegisterV2) \
    OBSERVE(aclrtHostUnregister) OBSERVE(aclrtGetMemInfo) OBSERVE(aclrtGetMemUsageInfo) \
    OBSERVE(aclrtMemcpy) OBSERVE(aclrtMemcpy2d) OBSERVE(aclrtMemcpyBatch) OBSERVE(aclrtMemcpyBatchV2) \
    OBSERVE(aclrtMemset) OBSERVE(aclmdlLoadFromFile) OBSERVE(aclmdlLoadFromMem) \
    OBSERVE(aclmdlLoadFromFileWithMem) OBSERVE(aclmdlLoadFromMemWithMem) OBSERVE(aclmdlLoadWithConfig) \
    OBSERVE(aclmdlQuerySize) OBSERVE(aclmdlQuerySizeFromMem) OBSERVE(aclmdlGetDescFromFile) \
    OBSERVE(aclmdlGetDescFromMem) OBSERVE(aclmdlUnload) OBSERVE(aclmdlExecute) OBSERVE(aclmdlRICaptureEnd) \
    OBSERVE(aclmdlRIExecute) OBSERVE(aclmdlRIAbort) OBSERVE(aclmdlRIDestroy)

namespace aioascend {
namespace {

constexpr size_t kSlots = 4;  // libraries that can be observed; no argument of a call tells them apart

std::atomic<BlockingCallObserver> g_observer{nullptr};

template <size_t Slot, auto Function>
struct Observed;

template <size_t Slot, typename Result, typename... Arguments, Result (*AclApi::*Function)(Arguments...)>
struct Observed<Slot, Function> {
    static inline Result (*inner)(Arguments...) = nullptr;
    static inline const char *name = "";

    static Result call(Arguments... arguments) {
        g_observer.load(std::memory_order_relaxed)(name);
        return inner(arguments...);
    }

    static void install(AclApi &api, const char *function) {
        if (api.*Function != nullptr) {
            name = function;
            inner = api.*Function;
            api.*Function = &call;
        }
    }
};

template <size_t Slot>
void install_all(AclApi &api) {
#define OBSERVE(function) Observed<Slot, &AclApi::function>::install(api, #function);
    AIOASCEND_BLOCKING_FUNCTIONS
#undef OBSERVE
}

template <size_t... Slots>
std::array<void (*)(AclApi &), kSlots> make_installers(std::index_sequence<Slots...>) {
    return {install_all<Slots>...};
}

}  // namespace

const Library *observe_blocking_calls(const Library &library, BlockingCallObserver observer) {
    static const auto installers = make_installers(std::make_index_sequence<kSlots>{});
    static auto &mutex = *new std::mutex;  // leaked, as the libraries are
    static auto &known = *new std::array<std::pair<const Library *, const Library *>, kSlots>{};

    g_observer.store(observer, std::memory_order_relaxed);
    std::lock_guard<std::mutex> lock(mutex);
    for (size_t slot = 0; slot < kSlots; ++slot) {
        auto &[original, observed] = known[slot];
        if (original == &library) {
            return observed;
        }
        if (original == nullptr) {
            auto *copy = new Library(library);
            installers[slot](copy->api);
            original = &library;
            return observed = copy;
        }
    }
    return &library;
}

}  // namespace aioascend
