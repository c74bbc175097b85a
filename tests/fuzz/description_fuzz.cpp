// SPDX-License-Identifier: Apache-2.0
// Any bytes as a model: they load, and then what they describe can be asked for and run, or are refused with a message.
#include <vector>

#include "target.h"

using fuzz::require;

namespace {

constexpr size_t largest_run = 1 << 16;  // bytes of all inputs and outputs together

void check_dims(const aclmdlIODims &dims) {
    require(dims.dimCount <= ACL_MAX_DIM_CNT, "more dimensions than the structure holds");
    size_t length = 0;
    while (length < sizeof dims.name && dims.name[length] != '\0') {
        ++length;
    }
    require(length < sizeof dims.name, "a name that is not terminated");
}

// Bytes that a run takes; SIZE_MAX when only the run will tell, or it is too large to try.
size_t describe(aclmdlDesc *desc) {
    size_t bytes = 0;
    bool open = false;
    const auto look = [&](size_t count, const auto &dims_of, const auto &name_of, const auto &size_of) {
        require(count > 0, "a model without inputs or outputs");
        for (size_t i = 0; i < count; ++i) {
            aclmdlIODims dims{};
            require(dims_of(i, &dims) == 0, "the dimensions cannot be asked for");
            check_dims(dims);
            require(name_of(i) != nullptr, "no name");
            const size_t size = size_of(i);
            open = open || size == 0 || size > largest_run;
            bytes += size;
        }
    };
    look(
        aclmdlGetNumInputs(desc), [&](size_t i, aclmdlIODims *dims) { return aclmdlGetInputDims(desc, i, dims); },
        [&](size_t i) { return aclmdlGetInputNameByIndex(desc, i); },
        [&](size_t i) { return aclmdlGetInputSizeByIndex(desc, i); });
    look(
        aclmdlGetNumOutputs(desc), [&](size_t i, aclmdlIODims *dims) { return aclmdlGetOutputDims(desc, i, dims); },
        [&](size_t i) { return aclmdlGetOutputNameByIndex(desc, i); },
        [&](size_t i) { return aclmdlGetOutputSizeByIndex(desc, i); });
    size_t gears = 0;
    require(aclmdlGetInputDynamicGearCount(desc, SIZE_MAX, &gears) == 0, "the gears cannot be counted");
    require(gears <= 100, "more gears than there may be");
    std::vector<aclmdlIODims> all(gears);
    if (gears != 0) {
        require(aclmdlGetInputDynamicDims(desc, SIZE_MAX, all.data(), gears) == 0, "the gears cannot be asked for");
    }
    for (const aclmdlIODims &gear : all) {
        check_dims(gear);
    }
    return open || bytes > largest_run ? SIZE_MAX : bytes;
}

void add(aclmdlDataset *set, size_t size, std::vector<void *> &memory, std::vector<aclDataBuffer *> &buffers) {
    void *block = nullptr;
    require(aclrtMalloc(&block, size, ACL_MEM_MALLOC_HUGE_FIRST) == 0, "no memory for a run");
    require(aclrtMemset(block, size, 0, size) == 0, "memory that cannot be set");
    memory.push_back(block);
    buffers.push_back(aclCreateDataBuffer(block, size));
    require(aclmdlAddDatasetBuffer(set, buffers.back()) == 0, "a dataset that takes no buffer");
}

void run(uint32_t id, aclmdlDesc *desc) {
    aclmdlDataset *inputs = aclmdlCreateDataset(), *outputs = aclmdlCreateDataset();
    std::vector<void *> memory;
    std::vector<aclDataBuffer *> buffers;
    for (size_t i = 0; i < aclmdlGetNumInputs(desc); ++i) {
        add(inputs, aclmdlGetInputSizeByIndex(desc, i), memory, buffers);
    }
    for (size_t i = 0; i < aclmdlGetNumOutputs(desc); ++i) {
        add(outputs, aclmdlGetOutputSizeByIndex(desc, i), memory, buffers);
    }
    const int code = aclmdlExecute(id, inputs, outputs);
    if (code != 0) {
        fuzz::require_refusal(code, {ACL_ERROR_RT_MODEL_EXECUTE});
    }
    aclmdlDestroyDataset(inputs);
    aclmdlDestroyDataset(outputs);
    for (aclDataBuffer *buffer : buffers) {
        aclDestroyDataBuffer(buffer);
    }
    for (void *block : memory) {
        aclrtFree(block);
    }
}

bool prepare() {
    // Models for the engine are refused, so that this neither needs it nor tests it. In virtual time none takes long,
    // and on a small device none takes much.
    require(aclsimSetEngineLibrary("/nowhere/libopenvino_c.so") == 0 && aclsimSetClock(1) == 0 &&
                aclsimLimitMemory(0, 64 << 20) == 0 && aclrtSetDevice(0) == 0,
            "the simulator does not start");
    return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const bool prepared = prepare();
    static_cast<void>(prepared);
    uint32_t id = 0;
    const int code = aclmdlLoadFromMem(data, size, &id);
    size_t work = 0, weights = 0;
    const int query = aclmdlQuerySizeFromMem(data, size, &work, &weights);
    if (code != 0) {
        // No model; cut off; the engine is missing; too large for the device; an empty input; a file it names is not
        // there, or is no model.
        fuzz::require_refusal(code, {ACL_ERROR_INVALID_FILE, ACL_ERROR_GE_EXEC_MODEL_DATA_SIZE_INVALID,
                                     ACL_ERROR_GE_FAILURE, ACL_ERROR_RT_MEMORY_ALLOCATION, ACL_ERROR_INVALID_PARAM,
                                     ACL_ERROR_GE_EXEC_MODEL_PATH_INVALID});
        return 0;
    }
    require(query == 0 || query == ACL_ERROR_GE_PARAM_INVALID, "loads, but its size cannot be asked for", query);
    aclmdlDesc *desc = aclmdlCreateDesc();
    require(aclmdlGetDesc(desc, id) == 0, "loads, but cannot be described");
    if (describe(desc) != SIZE_MAX) {
        run(id, desc);
    }
    aclmdlDestroyDesc(desc);
    require(aclmdlUnload(id) == 0, "loads, but cannot be unloaded");
    require(aclsimLive("models") == 0 && aclsimLive("device_blocks") == 0, "something is left behind");
    return 0;
}
