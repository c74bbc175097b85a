// SPDX-License-Identifier: Apache-2.0
// Virtual time, profiles, units, the timeline.
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "scene.h"

namespace {

constexpr uint64_t us = 1000;

// A profile made for the occasion.
void use_profile(const std::string &text) {
    const std::string path = "/tmp/aclsim_profile_" + std::to_string(getpid()) + ".toml";
    std::ofstream(path) << text;
    OK(aclsimSetProfile(-1, path.c_str()));
    unlink(path.c_str());
}

const char *const plain = R"(
ai_cores = 2
h2d_gbps = 1.0
d2h_gbps = 1.0
d2d_gbps = 10.0
copy_latency_us = 10
launch_overhead_us = 5
)";

// A model of fixed latency on one stream.
class Model {
public:
    explicit Model(uint32_t latency_us) {
        const std::string path = "/tmp/aclsim_model_" + std::to_string(getpid()) + ".toml";
        std::ofstream(path)
            << "name = \"m" << latency_us << "\"\nlatency_us = " << latency_us
            << "\n[[inputs]]\nname = \"x\"\ndtype = \"float32\"\nshape = [4]\n"
               "[[outputs]]\nname = \"y\"\ndtype = \"float32\"\nshape = [4]\nfill = \"zeros\"\n";
        OK(aclmdlLoadFromFile(path.c_str(), &id_));
        unlink(path.c_str());
        in_ = dataset(input_.p);
        out_ = dataset(output_.p);
    }
    ~Model() {
        for (aclmdlDataset *set : {in_, out_}) {
            aclDestroyDataBuffer(aclmdlGetDatasetBuffer(set, 0));
            aclmdlDestroyDataset(set);
        }
        aclmdlUnload(id_);
    }
    Model(const Model &) = delete;
    Model &operator=(const Model &) = delete;
    int on(aclrtStream stream) { return aclmdlExecuteAsync(id_, in_, out_, stream); }

private:
    static aclmdlDataset *dataset(void *p) {
        aclmdlDataset *set = aclmdlCreateDataset();
        OK(aclmdlAddDatasetBuffer(set, aclCreateDataBuffer(p, 16)));
        return set;
    }
    DeviceBuffer input_{16}, output_{16};
    uint32_t id_ = 0;
    aclmdlDataset *in_ = nullptr, *out_ = nullptr;
};

bool overlap(const aclsimRecord &a, const aclsimRecord &b) {
    return a.start_ns < b.end_ns && b.start_ns < a.end_ns;
}

}  // namespace

TEST(virtual_time_jumps_exactly) {
    Scene scene;
    OK(aclsimSetClock(1));
    use_profile(plain);
    aclrtStream stream = scene.stream();
    DeviceBuffer device(1000000);
    HostBuffer host(1000000);
    const uint64_t begin = aclsimNow();
    OK(aclrtMemcpyAsync(device.p, 1000000, host.p, 1000000, ACL_MEMCPY_HOST_TO_DEVICE, stream));
    OK(aclrtSynchronizeStream(stream));
    CHECK_EQ(aclsimNow() - begin, 1015 * us);
    CHECK_EQ(aclsimNow() - begin, 1015 * us);  // and stands still
    OK(aclrtMemcpy(device.p, 1000, host.p, 1000, ACL_MEMCPY_HOST_TO_DEVICE));
    CHECK_EQ(aclsimNow() - begin, 1015 * us + 16 * us);
}

TEST(real_time_goes_on) {
    Scene scene;
    use_profile(plain);
    DeviceBuffer device(64);
    HostBuffer host(64);
    const uint64_t begin = aclsimNow();
    OK(aclrtMemcpy(device.p, 64, host.p, 64, ACL_MEMCPY_HOST_TO_DEVICE));
    CHECK(aclsimNow() - begin >= 15 * us);
}

TEST(each_direction_has_one_engine) {
    Scene scene;
    OK(aclsimSetClock(1));
    use_profile(plain);
    aclrtStream one = scene.stream(), two = scene.stream(), three = scene.stream();
    DeviceBuffer device(300000);
    HostBuffer host(300000);
    char *to = static_cast<char *>(device.p), *from = static_cast<char *>(host.p);
    const uint64_t begin = aclsimNow();
    OK(aclsimHoldDevice(0));
    OK(aclrtMemcpyAsync(to, 100000, from, 100000, ACL_MEMCPY_HOST_TO_DEVICE, one));
    OK(aclrtMemcpyAsync(to + 100000, 100000, from + 100000, 100000, ACL_MEMCPY_HOST_TO_DEVICE, two));
    OK(aclrtMemcpyAsync(from + 200000, 100000, to + 200000, 100000, ACL_MEMCPY_DEVICE_TO_HOST, three));
    OK(aclsimReleaseDevice(0));
    OK(aclrtSynchronizeDevice());
    const auto records = timeline();
    CHECK_EQ(records.size(), 3u);
    std::vector<aclsimRecord> in, out;
    for (const aclsimRecord &record : records) {
        (std::string(record.unit) == "copy_in" ? in : out).push_back(record);
    }
    CHECK_EQ(in.size(), 2u);
    CHECK(!overlap(in[0], in[1]));
    CHECK(overlap(in[0], out[0]));
    CHECK_EQ(in[1].end_ns - begin, 230 * us);
    CHECK_EQ(out[0].end_ns - begin, 115 * us);
}

TEST(a_profile_can_have_more_copy_engines) {
    Scene scene;
    OK(aclsimSetClock(1));
    use_profile(std::string(plain) + "copy_engines = 2\n");
    DeviceBuffer device(300000);
    HostBuffer host(300000);
    char *to = static_cast<char *>(device.p), *from = static_cast<char *>(host.p);
    const uint64_t begin = aclsimNow();
    OK(aclsimHoldDevice(0));
    for (int i = 0; i < 3; ++i) {
        OK(aclrtMemcpyAsync(to + i * 100000, 100000, from + i * 100000, 100000, ACL_MEMCPY_HOST_TO_DEVICE,
                            scene.stream()));
    }
    OK(aclsimReleaseDevice(0));
    OK(aclrtSynchronizeDevice());
    const auto records = timeline();
    CHECK_EQ(records.size(), 3u);
    CHECK(overlap(records[0], records[1]));
    CHECK(records[0].unit_index != records[1].unit_index);
    CHECK_EQ(records[1].end_ns - begin, 115 * us);
    CHECK_EQ(records[2].end_ns - begin, 230 * us);
}

TEST(models_contend_for_cores_by_priority) {
    Scene scene;
    OK(aclsimSetClock(1));
    use_profile(plain);  // two cores
    Model a(100), b(100), c(100), d(100);
    aclrtStream streams[4];
    const uint32_t priorities[4] = {0, 0, 7, 3};
    for (int i = 0; i < 4; ++i) {
        OK(aclrtCreateStreamWithConfig(&streams[i], priorities[i], 0));
    }
    aclsimClearTimeline();
    OK(aclsimHoldDevice(0));
    Model *models[4] = {&a, &b, &c, &d};
    for (int i = 0; i < 4; ++i) {
        OK(models[i]->on(streams[i]));
    }
    const uint64_t begin = aclsimNow();
    OK(aclsimReleaseDevice(0));
    OK(aclrtSynchronizeDevice());
    const auto records = timeline();
    CHECK_EQ(records.size(), 4u);
    CHECK_EQ(records[3].end_ns - begin, 2 * 105 * us);
    int32_t id[4];
    uint64_t start[4] = {};
    for (int i = 0; i < 4; ++i) {
        OK(aclrtStreamGetId(streams[i], &id[i]));
        for (const aclsimRecord &record : records) {
            if (record.stream_id == id[i]) {
                start[i] = record.start_ns;
                CHECK_EQ(std::string(record.name), "m100");
                CHECK_EQ(std::string(record.kind), "execute");
            }
        }
    }
    CHECK_EQ(start[0], start[1]);
    CHECK_EQ(start[2], start[3]);
    CHECK_EQ(start[2] - start[0], 105 * us);
    // Three on two cores: the two of high priority first.
    aclsimClearTimeline();
    OK(aclsimHoldDevice(0));
    for (int i : {2, 3, 0, 1}) {
        for (int again = 0; again < 2; ++again) {
            OK(models[i]->on(streams[i]));
        }
    }
    OK(aclsimReleaseDevice(0));
    OK(aclrtSynchronizeDevice());
    const auto second = timeline();
    CHECK_EQ(second.size(), 8u);
    CHECK_EQ(second.back().stream_id, id[2]);
    int cores = 0;
    for (const aclsimRecord &record : second) {
        cores = std::max(cores, record.unit_index + 1);
        int at_once = 0;
        for (const aclsimRecord &other : second) {
            at_once += other.start_ns <= record.start_ns && record.start_ns < other.end_ns;
        }
        CHECK(at_once <= 2);
    }
    CHECK_EQ(cores, 2);
}

TEST(utilization_is_busy_time) {
    Scene scene;
    OK(aclsimSetClock(1));
    use_profile("ai_cores = 2\n");
    Model model(1000);
    aclrtUtilizationInfo info{};
    OK(aclrtGetDeviceUtilizationRate(0, &info));
    OK(model.on(nullptr));
    OK(aclrtSynchronizeStream(nullptr));
    OK(aclrtGetDeviceUtilizationRate(0, &info));
    CHECK_EQ(info.cubeUtilization, 50);
    CHECK_EQ(info.memoryUtilization, -1);
    CHECK_CODE(aclrtGetDeviceUtilizationRate(99, &info), ACL_ERROR_RT_INVALID_DEVICEID);
}

TEST(virtual_time_is_shared_by_all_devices) {
    Scene one(1);
    OK(aclsimSetClock(1));
    use_profile(plain);
    aclrtStream slow = one.stream();
    DeviceBuffer there(1000000);
    HostBuffer host(1000000);
    const uint64_t begin = aclsimNow();
    OK(aclsimHoldDevice(-1));
    OK(aclrtMemcpyAsync(there.p, 1000000, host.p, 1000000, ACL_MEMCPY_HOST_TO_DEVICE, slow));
    Scene zero(0);
    OK(aclsimHoldDevice(0));
    DeviceBuffer here(1000);
    aclrtStream quick = zero.stream();
    for (int i = 0; i < 10; ++i) {
        OK(aclrtMemcpyAsync(here.p, 1000, host.p, 1000, ACL_MEMCPY_HOST_TO_DEVICE, quick));
    }
    OK(aclsimReleaseDevice(-1));
    OK(aclrtSynchronizeStream(slow));
    OK(aclrtSynchronizeStream(quick));
    for (const aclsimRecord &record : timeline()) {
        CHECK_EQ((record.end_ns - begin) % us, 0u);
    }
    const auto records = timeline();
    CHECK_EQ(records.size(), 11u);
    CHECK_EQ(records.back().device, 1);
    CHECK_EQ(records.back().end_ns - begin, 1015 * us);
    CHECK_EQ(records[9].end_ns - begin, 160 * us);
}

TEST(callback_latency_delays_the_report) {
    Scene scene;
    OK(aclsimSetClock(1));
    use_profile("callback_latency_us = 20\n");
    aclrtStream stream = scene.stream();
    OK(aclrtSubscribeReport(static_cast<uint64_t>(pthread_self()), stream));
    const uint64_t begin = aclsimNow();
    static uint64_t ran_at;
    OK(aclrtLaunchCallback([](void *) { ran_at = aclsimNow(); }, nullptr, ACL_CALLBACK_NO_BLOCK, stream));
    OK(aclrtProcessReport(-1));
    CHECK_EQ(ran_at - begin, 20 * us);
}

TEST(holding_and_stepping) {
    Scene scene;
    DeviceBuffer device(1);
    aclrtStream stream = scene.stream();
    CHECK_CODE(aclsimStep(stream, 1), ACL_ERROR_RT_PARAM_INVALID);
    OK(aclsimHoldStream(stream));
    for (int i = 0; i < 5; ++i) {
        OK(aclrtMemsetAsync(device.p, 1, i, 1, stream));
    }
    OK(aclsimStep(stream, 2));
    OK(aclsimWaitTasks(stream, 2, -1));
    CHECK_CODE(aclsimWaitTasks(stream, 3, 1), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
    CHECK_EQ(timeline().size(), 2u);
    OK(aclsimReleaseStream(stream));
    OK(aclrtSynchronizeStream(stream));
    CHECK_CODE(aclsimHoldStream(nullptr), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclsimHoldDevice(99), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclsimSetClock(2), ACL_ERROR_RT_PARAM_INVALID);
}

TEST(the_timeline_is_a_ring) {
    Scene scene;
    OK(aclsimSetTimelineCapacity(4));
    DeviceBuffer device(1);
    aclrtStream stream = scene.stream();
    for (int i = 0; i < 10; ++i) {
        OK(aclrtMemsetAsync(device.p, 1, i, 1, stream));
    }
    OK(aclrtSynchronizeStream(stream));
    const auto records = timeline();
    CHECK_EQ(records.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
        CHECK_EQ(records[i].task_id, 6 + i);
        CHECK(records[i].queued_ns <= records[i].start_ns && records[i].start_ns <= records[i].end_ns);
    }
    aclsimRecord newest[2];
    size_t count = 0;
    OK(aclsimTimeline(newest, 2, &count));
    CHECK_EQ(newest[1].task_id, 9u);
    OK(aclsimClearTimeline());
    CHECK_EQ(timeline().size(), 0u);
    OK(aclsimSetTimelineCapacity(0));
    OK(aclrtMemset(device.p, 1, 0, 1));
    CHECK_EQ(timeline().size(), 0u);
}

TEST(profiles_are_checked) {
    Scene scene;
    for (const char *name : {"instant", "inference-card", "atlas-a2"}) {
        OK(aclsimSetProfile(-1, name));
    }
    CHECK_EQ(std::string(aclrtGetSocName()), "Ascend910B3");
    int64_t value = 0;
    OK(aclrtGetDeviceInfo(0, ACL_DEV_ATTR_AICORE_CORE_NUM, &value));
    CHECK_EQ(value, 20);
    CHECK_CODE(aclsimSetProfile(-1, "nothing"), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclsimSetProfile(-1, nullptr), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclsimSetProfile(99, "instant"), ACL_ERROR_RT_PARAM_INVALID);
    const std::string path = "/tmp/aclsim_bad_" + std::to_string(getpid()) + ".toml";
    for (const char *bad : {"ai_cores = 0\n", "copy_engines = 0\n", "h2d_gbps = -1.0\n", "h2d_gpbs = 1.0\n",
                            "d2h_gbps = 1e-300\n", "d2d_gbps = inf\n", "copy_latency_us = 1e300\n",
                            "ai_cores = \"many\"\n", "[models.x]\nlatency = 3\n", "ai_cores = \n"}) {
        std::ofstream(path) << bad;
        CHECK_CODE(aclsimSetProfile(-1, path.c_str()), ACL_ERROR_RT_PARAM_INVALID);
        const char *message = aclGetRecentErrMsg();
        CHECK(message != nullptr && std::strstr(message, path.c_str()) != nullptr);
    }
    unlink(path.c_str());
}
