// SPDX-License-Identifier: Apache-2.0
// Models from several threads at once: what sanitizers are to look at. What models do is tested in
// tests/sim_models.
#include <string>

#include "scene.h"

namespace {

constexpr char sum_model[] =
    "name = 'sum'\n"
    "inputs = [{ name = 'x', shape = [-1, 4] }]\n"
    "outputs = [{ name = 'total', shape = [-1, 1], fill = 'sum' }]\n";

constexpr char gear_model[] =
    "name = 'gears'\n"
    "dynamic_batch = [1, 2, 8]\n"
    "inputs = [{ name = 'x', shape = [-1, 4] }]\n"
    "outputs = [{ name = 'y', shape = [-1, 4], fill = 'copy' }]\n";

uint32_t load(const char *text) {
    uint32_t id = 0;
    OK(aclmdlLoadFromMem(text, std::strlen(text), &id));
    return id;
}

class Dataset {
public:
    explicit Dataset(const std::vector<DeviceBuffer *> &memory) : handle(aclmdlCreateDataset()) {
        for (DeviceBuffer *block : memory) {
            buffers_.push_back(aclCreateDataBuffer(block ? block->p : nullptr, block ? block->size : 0));
            OK(aclmdlAddDatasetBuffer(handle, buffers_.back()));
        }
    }
    ~Dataset() {
        aclmdlDestroyDataset(handle);
        for (aclDataBuffer *buffer : buffers_) {
            aclDestroyDataBuffer(buffer);
        }
    }
    Dataset(const Dataset &) = delete;
    Dataset &operator=(const Dataset &) = delete;

    void describe(const std::vector<int64_t> &shape) {
        aclTensorDesc *desc =
            aclCreateTensorDesc(ACL_FLOAT, static_cast<int>(shape.size()), shape.data(), ACL_FORMAT_ND);
        OK(aclmdlSetDatasetTensorDesc(handle, desc, 0));
        aclDestroyTensorDesc(desc);
    }

    aclmdlDataset *const handle;

private:
    std::vector<aclDataBuffer *> buffers_;
};

void run_in_threads(int count, const std::function<void(int)> &body) {
    std::mutex mutex;
    std::string problem;
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) {
        threads.emplace_back([&, i] {
            try {
                OK(aclrtSetDevice(0));
                body(i);
                OK(aclrtResetDevice(0));
            } catch (const std::exception &error) {
                std::lock_guard<std::mutex> lock(mutex);
                problem = error.what();
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    CHECK_EQ(problem, std::string());
}

}  // namespace

TEST(threads_load_execute_and_unload_the_same_model) {
    Scene scene;
    run_in_threads(6, [&](int thread) {
        aclrtStream stream = scene.stream();
        for (int round = 0; round < 20; ++round) {
            const uint32_t id = load(sum_model);
            const auto rows = static_cast<int64_t>(1 + (thread + round) % 5);
            std::vector<float> in(static_cast<size_t>(rows) * 4, static_cast<float>(thread + 1)), out(5);
            DeviceBuffer x(in.size() * 4), total(out.size() * 4);
            OK(aclrtMemcpy(x.p, x.size, in.data(), x.size, ACL_MEMCPY_HOST_TO_DEVICE));
            Dataset inputs({&x}), outputs({&total});
            inputs.describe({rows, 4});
            for (int i = 0; i < 10; ++i) {
                OK(aclmdlExecuteAsync(id, inputs.handle, outputs.handle, stream));
            }
            OK(aclrtSynchronizeStream(stream));
            OK(aclrtMemcpy(out.data(), out.size() * 4, total.p, total.size, ACL_MEMCPY_DEVICE_TO_HOST));
            CHECK_EQ(out[static_cast<size_t>(rows) - 1], 4.0f * static_cast<float>(thread + 1));
            OK(aclmdlUnload(id));
        }
        OK(aclrtDestroyStream(stream));
    });
    CHECK_EQ(aclsimLive("models"), 0);
}

TEST(threads_set_gears_and_execute_synchronously) {
    Scene scene;
    run_in_threads(4, [&](int thread) {
        const uint32_t id = load(gear_model);
        DeviceBuffer x(8 * 16), gear(8);
        std::vector<float> in(32, static_cast<float>(thread));
        OK(aclrtMemcpy(x.p, x.size, in.data(), x.size, ACL_MEMCPY_HOST_TO_DEVICE));
        for (int round = 0; round < 30; ++round) {
            Dataset inputs({&x, &gear}), outputs({nullptr});
            const int64_t batch = round % 3 == 0 ? 1 : round % 3 == 1 ? 2 : 8;
            OK(aclmdlSetDynamicBatchSize(id, inputs.handle, 1, static_cast<uint64_t>(batch)));
            OK(aclmdlExecute(id, inputs.handle, outputs.handle));
            int64_t rows = 0;
            OK(aclGetTensorDescDimV2(aclmdlGetDatasetTensorDesc(outputs.handle, 0), 0, &rows));
            CHECK_EQ(rows, batch);
            OK(aclrtFree(aclGetDataBufferAddr(aclmdlGetDatasetBuffer(outputs.handle, 0))));
        }
        OK(aclmdlUnload(id));
    });
}

TEST(unload_races_with_execution) {
    Scene scene;
    for (int round = 0; round < 30; ++round) {
        const uint32_t id = load(sum_model);
        DeviceBuffer x(16), total(4);
        Dataset inputs({&x}), outputs({&total});
        inputs.describe({1, 4});
        run_in_threads(2, [&](int thread) {
            if (thread == 0) {
                const int code = aclmdlExecute(id, inputs.handle, outputs.handle);
                CHECK(code == 0 || code == ACL_ERROR_GE_EXEC_MODEL_ID_INVALID);
            } else {
                const int code = aclmdlUnload(id);
                CHECK(code == 0 || code == ACL_ERROR_GE_UNLOAD_MODEL);
            }
        });
        aclmdlUnload(id);
        CHECK_EQ(aclsimLive("models"), 0);
    }
}

TEST(a_reset_takes_models_with_work_in_flight) {
    Scene scene;
    OK(aclrtSetDevice(1));
    const uint32_t id = load(sum_model);
    DeviceBuffer *x = new DeviceBuffer(16), *total = new DeviceBuffer(4);
    Dataset inputs({x}), outputs({total});
    inputs.describe({1, 4});
    aclrtStream stream = scene.stream();
    OK(aclsimHoldStream(stream));
    OK(aclmdlExecuteAsync(id, inputs.handle, outputs.handle, stream));
    OK(aclrtResetDeviceForce(1));
    CHECK_EQ(aclsimLive("models"), 0);
    CHECK_EQ(aclsimLive("tasks"), 0);
    x->p = total->p = nullptr;  // gone with the device
    delete x;
    delete total;
    OK(aclrtSetDevice(0));
    CHECK_CODE(aclmdlUnload(id), ACL_ERROR_GE_EXEC_MODEL_ID_INVALID);
}
