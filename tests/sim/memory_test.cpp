// SPDX-License-Identifier: Apache-2.0
// Allocation, copies, memsets, pageable memory, peers.
#include <cstdlib>

#include "scene.h"

namespace {

unsigned char first_byte(const void *device) {
    unsigned char value = 0;
    OK(aclrtMemcpy(&value, 1, device, 1, ACL_MEMCPY_DEVICE_TO_HOST));
    return value;
}

constexpr auto h2d = ACL_MEMCPY_HOST_TO_DEVICE;
constexpr auto d2h = ACL_MEMCPY_DEVICE_TO_HOST;
constexpr auto d2d = ACL_MEMCPY_DEVICE_TO_DEVICE;

}  // namespace

TEST(allocation_rules) {
    Scene scene;
    void *p = nullptr;
    CHECK_CODE(aclrtMalloc(&p, 0, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_INVALID_PARAM);
    CHECK_CODE(aclrtMalloc(nullptr, 8, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_INVALID_PARAM);
    CHECK_CODE(aclrtMalloc(&p, 8, static_cast<aclrtMemMallocPolicy>(0x77)), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclrtMallocHost(&p, 0), ACL_ERROR_INVALID_PARAM);
    CHECK_CODE(aclrtFree(nullptr), ACL_ERROR_INVALID_PARAM);
    CHECK_CODE(aclrtFreeHost(nullptr), ACL_ERROR_INVALID_PARAM);
    const auto or_ed =
        static_cast<aclrtMemMallocPolicy>(ACL_MEM_MALLOC_NORMAL_ONLY | ACL_MEM_TYPE_HIGH_BAND_WIDTH);
    OK(aclrtMalloc(&p, 1, or_ed));
    CHECK_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
    CHECK_EQ(aclsimLive("device_blocks"), 1);
    OK(aclrtFree(p));
    CHECK_CODE(aclrtFree(p), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_EQ(aclsimLive("device_bytes"), 0);
    int on_stack = 0;
    CHECK_CODE(aclrtFree(&on_stack), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclrtFreeHost(&on_stack), ACL_ERROR_RT_PARAM_INVALID);
    aclrtMallocAttribute attribute{};
    attribute.attr = ACL_RT_MEM_ATTR_DEVICE_ID;
    attribute.value.deviceId = 1;
    aclrtMallocConfig config{&attribute, 1};
    OK(aclrtMallocWithCfg(&p, 64, ACL_MEM_MALLOC_HUGE_FIRST, &config));
    aclrtPtrAttributes where;
    OK(aclrtPointerGetAttributes(p, &where));
    CHECK_EQ(where.location.id, 1u);
    CHECK_EQ(where.location.type, ACL_MEM_LOCATION_TYPE_DEVICE);
    OK(aclrtFreeWithDevSync(p));
    attribute.value.deviceId = 70;
    CHECK_CODE(aclrtMallocWithCfg(&p, 64, ACL_MEM_MALLOC_HUGE_FIRST, &config), ACL_ERROR_RT_INVALID_DEVICEID);
}

TEST(memory_runs_out_and_is_accounted) {
    Scene scene;
    OK(aclsimLimitMemory(0, 1 << 20));
    size_t free = 0, total = 0;
    OK(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total));
    CHECK_EQ(total, size_t(1 << 20));
    CHECK_EQ(free, total);
    void *p = nullptr, *q = nullptr;
    OK(aclrtMalloc(&p, (1 << 20) - 64, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total));
    CHECK_EQ(free, 32u);
    CHECK_CODE(aclrtMalloc(&q, 33, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_RT_MEMORY_ALLOCATION);
    CHECK_CODE(aclrtMalloc(&q, SIZE_MAX - 5, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_RT_MEMORY_ALLOCATION);
    OK(aclrtFree(p));
    OK(aclrtMalloc(&q, 33, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtFree(q));
    OK(aclrtGetMemInfo(static_cast<aclrtMemAttr>(99), &free, &total));
    CHECK_EQ(total, 0u);
    aclrtMemUsageInfo usage;
    size_t entries = 0;
    OK(aclrtGetMemUsageInfo(0, &usage, 1, &entries));
    CHECK_EQ(usage.curMemSize, 0u);
    CHECK(usage.memPeakSize >= (1 << 20) - 64);
}

TEST(freed_memory_is_poisoned) {
    Scene scene;
    void *p = nullptr;
    OK(aclrtMalloc(&p, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtMemset(p, 64, 1, 64));
    OK(aclrtFree(p));
    // Device memory is memory of this process, and freed blocks stay in quarantine for a while.
    CHECK_EQ(int(static_cast<volatile unsigned char *>(p)[10]), 0xDB);
}

TEST(copy_arguments) {
    Scene scene;
    aclrtStream stream = scene.stream();
    DeviceBuffer device(64);
    HostBuffer host(64);
    OK(aclrtMemcpy(nullptr, 0, nullptr, 0, h2d));
    OK(aclrtMemcpyAsync(nullptr, 0, nullptr, 0, h2d, stream));
    CHECK_CODE(aclrtMemcpy(device.p, 10, host.p, 11, h2d), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclrtMemcpyAsync(device.p, 10, host.p, 11, h2d, stream), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclrtMemcpy(nullptr, 64, host.p, 64, h2d), ACL_ERROR_INVALID_PARAM);
    CHECK_CODE(aclrtMemcpyAsync(device.p, 64, nullptr, 64, h2d, stream), ACL_ERROR_INVALID_PARAM);
    OK(aclrtMemcpy(host.p, 64, host.p, 64, ACL_MEMCPY_HOST_TO_HOST));
    CHECK_CODE(aclrtMemcpy(device.p, 64, host.p, 64, ACL_MEMCPY_INNER_DEVICE_TO_DEVICE),
               ACL_ERROR_INVALID_PARAM);
    CHECK_CODE(aclrtMemcpy(device.p, 64, host.p, 64, static_cast<aclrtMemcpyKind>(50)),
               ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclrtMemcpyAsync(host.p, 64, host.bytes() + 1, 8, ACL_MEMCPY_HOST_TO_HOST, stream),
               ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
    CHECK_CODE(aclrtMemcpy(device.p, 128, host.p, 128, h2d), ACL_ERROR_RT_PARAM_INVALID);
    unsigned char pageable[8] = {};
    CHECK_CODE(aclrtMemcpy(pageable, 8, host.p, 8, h2d), ACL_ERROR_RT_PARAM_INVALID);
    // A wrong direction between known addresses is corrected.
    std::memset(host.p, 5, 64);
    OK(aclrtMemcpy(device.p, 64, host.p, 64, d2h));
    CHECK_EQ(int(first_byte(device.p)), 5);
    void *gone = device.p;
    OK(aclrtFree(device.p));
    device.p = nullptr;
    CHECK_CODE(aclrtMemcpy(gone, 64, host.p, 64, h2d), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclrtMemcpyAsync(gone, 64, host.p, 64, h2d, stream), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclrtMemset(gone, 64, 0, 64), ACL_ERROR_RT_PARAM_INVALID);
}

TEST(all_directions) {
    Scene scene;
    aclrtStream stream = scene.stream();
    for (size_t size : {size_t(1), size_t(4096), size_t(20000), size_t(300000)}) {
        HostBuffer in(size, 3), out(size);
        DeviceBuffer one(size), two(size);
        OK(aclrtMemcpyAsync(one.p, size, in.p, size, h2d, stream));
        OK(aclrtMemcpyAsync(two.p, size, one.p, size, d2d, stream));
        OK(aclrtMemcpyAsync(out.p, size, two.p, size, ACL_MEMCPY_DEFAULT, stream));
        OK(aclrtSynchronizeStream(stream));
        CHECK(std::memcmp(in.p, out.p, size) == 0);
        OK(aclrtMemsetAsync(two.p, size, 0x1FF, size, stream));
        OK(aclrtMemcpyAsync(out.p, size, two.p, size, d2h, stream));
        OK(aclrtSynchronizeStream(stream));
        CHECK_EQ(int(out.bytes()[size - 1]), 0xFF);
    }
    for (const aclsimRecord &record : timeline()) {
        const std::string kind = record.kind, unit = record.unit;
        CHECK((kind == "memcpy_h2d") == (unit == "copy_in"));
        CHECK((kind == "memcpy_d2h") == (unit == "copy_out"));
    }
}

TEST(the_source_is_read_when_the_copy_runs) {
    Scene scene;
    aclrtStream stream = scene.stream();
    HostBuffer host(64, 1);
    DeviceBuffer device(64);
    OK(aclsimHoldStream(stream));
    OK(aclrtMemcpyAsync(device.p, 64, host.p, 64, h2d, stream));
    std::memset(host.p, 2, 64);
    OK(aclsimReleaseStream(stream));
    OK(aclrtSynchronizeStream(stream));
    CHECK_EQ(int(first_byte(device.p)), 2);
    // Staged copies are the exception: the buffer is free when the call returns.
    OK(aclsimHoldStream(stream));
    OK(aclrtMemcpyAsync(device.p, 64, host.p, 64, ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE, stream));
    std::memset(host.p, 3, 64);
    OK(aclsimReleaseStream(stream));
    OK(aclrtSynchronizeStream(stream));
    CHECK_EQ(int(first_byte(device.p)), 2);
}

TEST(memory_freed_under_a_copy_fails_the_copy) {
    Scene scene;
    aclrtStream stream = scene.stream();
    HostBuffer host(64, 1);
    DeviceBuffer device(64);
    OK(aclsimHoldStream(stream));
    OK(aclrtMemcpyAsync(device.p, 64, host.p, 64, h2d, stream));
    OK(aclrtFree(device.p));
    device.p = nullptr;
    OK(aclsimReleaseStream(stream));
    CHECK_CODE(aclrtSynchronizeStream(stream), ACL_ERROR_RT_DEVICE_MEM_ERROR);
}

TEST(pageable_memory_makes_a_copy_blocking) {
    Scene scene;
    aclrtStream stream = scene.stream();
    DeviceBuffer device(64);
    std::vector<unsigned char> pageable(64, 7);
    OK(aclsimFailTask(0, stream, "memset", 1, ACL_ERROR_RT_AICORE_EXCEPTION));
    OK(aclrtMemsetAsync(device.p, 64, 1, 64, stream));
    // Takes the error of the earlier task, and copies nothing.
    CHECK_CODE(aclrtMemcpyAsync(device.p, 64, pageable.data(), 64, h2d, stream),
               ACL_ERROR_RT_AICORE_EXCEPTION);
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtMemcpyAsync(device.p, 64, pageable.data(), 64, h2d, stream));
    CHECK_EQ(int(first_byte(device.p)), 7);
    OK(aclsimHoldStream(stream));
    OK(aclrtMemsetAsync(device.p, 64, 1, 64, stream));
    std::atomic<bool> returned{false};
    std::thread copier([&, context = scene.context()] {
        OK(aclrtSetCurrentContext(context));
        OK(aclrtMemcpyAsync(device.p, 64, pageable.data(), 64, h2d, stream));
        returned = true;
    });
    OK(aclsimWaitBlocked(stream, 1, -1));
    CHECK(!returned);
    OK(aclsimReleaseStream(stream));
    copier.join();
    CHECK_EQ(int(first_byte(device.p)), 7);
    // The old driver let it through.
    OK(aclsimSetPageableMode(1));
    OK(aclsimHoldStream(stream));
    std::fill(pageable.begin(), pageable.end(), 8);
    OK(aclrtMemcpyAsync(device.p, 64, pageable.data(), 64, h2d, stream));
    std::fill(pageable.begin(), pageable.end(), 9);
    OK(aclsimReleaseStream(stream));
    OK(aclrtSynchronizeStream(stream));
    CHECK_EQ(int(first_byte(device.p)), 9);
}

TEST(registered_memory_counts_as_pinned) {
    Scene scene;
    aclrtStream stream = scene.stream();
    DeviceBuffer device(64);
    void *memory = nullptr, *mapped = nullptr;
    CHECK(posix_memalign(&memory, 4096, 4096) == 0);
    std::memset(memory, 6, 4096);
    aclrtPtrAttributes where;
    OK(aclrtPointerGetAttributes(memory, &where));
    CHECK_EQ(where.location.type, ACL_MEM_LOCATION_TYPE_UNREGISTERED);
    CHECK_CODE(aclrtHostUnregister(memory), ACL_ERROR_HOST_MEMORY_NOT_REGISTERED);
    CHECK_CODE(aclrtHostRegisterV2(memory, 4096, 0), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclrtHostRegisterV2(memory, 4096, ACL_HOST_REG_READONLY), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
    CHECK_CODE(aclrtHostRegister(memory, 4096, ACL_HOST_REGISTER_READONLY, &mapped),
               ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
    CHECK_CODE(aclrtHostRegister(static_cast<char *>(memory) + 8, 64, ACL_HOST_REGISTER_MAPPED, &mapped),
               ACL_ERROR_RT_PARAM_INVALID);
    OK(aclrtHostRegisterV2(memory, 4096, ACL_HOST_REG_PINNED));
    CHECK_CODE(aclrtHostRegisterV2(memory, 4096, ACL_HOST_REG_PINNED),
               ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    CHECK_CODE(aclrtHostGetDevicePointer(memory, &mapped, 0), ACL_ERROR_HOST_MEMORY_NOT_REGISTERED);
    OK(aclrtPointerGetAttributes(memory, &where));
    CHECK_EQ(where.location.type, ACL_MEM_LOCATION_TYPE_HOST);
    OK(aclsimHoldStream(stream));
    OK(aclrtMemcpyAsync(device.p, 64, memory, 64, h2d, stream));
    CHECK(!is_complete(stream));
    OK(aclsimReleaseStream(stream));
    OK(aclrtSynchronizeStream(stream));
    CHECK_CODE(aclrtFreeHost(memory), ACL_ERROR_RT_PARAM_INVALID);
    OK(aclrtHostUnregister(memory));
    OK(aclrtHostRegister(memory, 4096, ACL_HOST_REGISTER_MAPPED, &mapped));
    OK(aclrtHostGetDevicePointer(memory, &mapped, 0));
    OK(aclrtHostUnregister(memory));
    std::free(memory);
}

TEST(memset_arguments) {
    Scene scene;
    DeviceBuffer device(64);
    unsigned char pageable[8];
    OK(aclrtMemset(nullptr, 0, 0, 0));
    OK(aclrtMemsetAsync(nullptr, 0, 0, 0, nullptr));
    CHECK_CODE(aclrtMemset(device.p, 8, 0, 9), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclrtMemsetAsync(nullptr, 8, 0, 8, nullptr), ACL_ERROR_INVALID_PARAM);
    CHECK_CODE(aclrtMemset(pageable, 8, 0, 8), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclrtMemset(device.p, 4096, 0, 4096), ACL_ERROR_RT_PARAM_INVALID);
}

TEST(rows) {
    Scene scene;
    aclrtStream stream = scene.stream();
    HostBuffer host(100);
    DeviceBuffer device(100);
    for (int i = 0; i < 100; ++i) {
        host.bytes()[i] = static_cast<unsigned char>(i);
    }
    OK(aclrtMemset(device.p, 100, 0xEE, 100));
    OK(aclrtMemcpy2dAsync(device.p, 5, host.p, 10, 4, 10, h2d, stream));
    OK(aclrtSynchronizeStream(stream));
    unsigned char back[100];
    OK(aclrtMemcpy(back, 100, device.p, 100, d2h));
    CHECK_EQ(int(back[5]), 10);
    CHECK_EQ(int(back[8]), 13);
    CHECK_EQ(int(back[9]), 0xEE);
    std::memset(host.p, 0, 100);
    OK(aclrtMemcpy2d(host.p, 4, device.p, 5, 4, 10, d2h));
    CHECK_EQ(int(host.bytes()[4]), 10);
    OK(aclrtMemcpy2d(device.p, 5, host.p, 10, 0, 10, h2d));
    CHECK_CODE(aclrtMemcpy2d(device.p, 3, host.p, 10, 4, 10, h2d), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclrtMemcpy2d(device.p, 50, host.p, 10, 4, 10, h2d), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclrtMemcpy2d(device.p, 6000000, host.p, 6000000, 5000001, 1, h2d),
               ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclrtMemcpy2d(device.p, 5, host.p, 10, 4, 10, ACL_MEMCPY_DEFAULT), ACL_ERROR_INVALID_PARAM);
}

TEST(batches) {
    Scene scene;
    aclrtStream stream = scene.stream();
    HostBuffer host(64, 4), back(64);
    DeviceBuffer one(64), two(64);
    OK(aclrtMemset(two.p, 64, 9, 64));
    void *dsts[] = {one.p, back.p};
    void *srcs[] = {host.p, two.p};
    size_t maxs[] = {64, 64}, sizes[] = {64, 32}, indexes[] = {0, 1}, bad = 0;
    aclrtMemcpyBatchAttr attributes[2] = {};
    attributes[0].dstLoc.type = ACL_MEM_LOCATION_TYPE_DEVICE;
    attributes[0].srcLoc.type = ACL_MEM_LOCATION_TYPE_HOST;
    attributes[1].dstLoc.type = ACL_MEM_LOCATION_TYPE_HOST;
    attributes[1].srcLoc.type = ACL_MEM_LOCATION_TYPE_DEVICE;
    OK(aclrtMemcpyBatchAsync(dsts, maxs, srcs, sizes, 2, attributes, indexes, 2, &bad, stream));
    OK(aclrtSynchronizeStream(stream));
    CHECK_EQ(bad, SIZE_MAX);
    CHECK_EQ(int(first_byte(one.p)), 4);
    CHECK_EQ(int(back.bytes()[31]), 9);
    CHECK_EQ(int(back.bytes()[32]), 0);
    sizes[1] = 65;
    CHECK_CODE(aclrtMemcpyBatch(dsts, maxs, srcs, sizes, 2, attributes, indexes, 2, &bad),
               ACL_ERROR_RT_PARAM_INVALID);
    CHECK_EQ(bad, 1u);
    sizes[1] = 8;
    OK(aclrtMemcpyBatchV2(dsts, maxs, srcs, sizes, 2, attributes, indexes, 2));
    srcs[0] = two.p;
    CHECK_CODE(aclrtMemcpyBatchAsyncV2(dsts, maxs, srcs, sizes, 2, attributes, indexes, 2, stream),
               ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclrtMemcpyBatch(dsts, maxs, nullptr, sizes, 2, attributes, indexes, 2, &bad),
               ACL_ERROR_INVALID_PARAM);
    CHECK_CODE(aclrtMemcpyBatch(dsts, maxs, srcs, sizes, 2, attributes, indexes, 0, &bad),
               ACL_ERROR_RT_PARAM_INVALID);
}

TEST(peers_need_access) {
    Scene other(1);
    DeviceBuffer there(64);
    Scene scene(0);
    DeviceBuffer here(64);
    OK(aclrtMemset(here.p, 64, 2, 64));
    CHECK_CODE(aclrtMemcpy(there.p, 64, here.p, 64, d2d), ACL_ERROR_RT_DRV_INTERNAL_ERROR);
    OK(aclrtDeviceEnablePeerAccess(1, 0));
    OK(aclrtMemcpy(there.p, 64, here.p, 64, d2d));
    CHECK_EQ(int(first_byte(there.p)), 2);
    CHECK_CODE(aclrtMemcpy(here.p, 64, there.p, 64, d2d), ACL_ERROR_RT_DRV_INTERNAL_ERROR);
    OK(aclrtDeviceDisablePeerAccess(1));
    CHECK_CODE(aclrtMemcpy(there.p, 64, here.p, 64, d2d), ACL_ERROR_RT_DRV_INTERNAL_ERROR);
    CHECK_CODE(aclrtDeviceEnablePeerAccess(77, 0), ACL_ERROR_RT_INVALID_DEVICEID);
}
