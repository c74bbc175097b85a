// SPDX-License-Identifier: Apache-2.0
#include "core/profile.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <cmath>
#include <mutex>

#include "config/value.h"

namespace aclsim {

namespace {

std::mutex directory_mutex;
std::string *chosen_directory = new std::string;

std::string profile_directory() {
    {
        std::lock_guard<std::mutex> lock(directory_mutex);
        if (!chosen_directory->empty()) {
            return *chosen_directory;
        }
    }
    Dl_info info{};
    if (dladdr(reinterpret_cast<const void *>(&set_profile_directory), &info) == 0 ||
        info.dli_fname == nullptr) {
        return "profiles";
    }
    const std::string library = info.dli_fname;
    const size_t slash = library.rfind('/');
    return (slash == std::string::npos ? std::string() : library.substr(0, slash + 1)) + "profiles";
}

bool exists(const std::string &path) {
    struct stat info{};
    return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

double bandwidth(const config::Table &table, const char *key) {
    const double value = table.number(key).value_or(0);
    if (value != 0 && !(value >= 1e-6 && value <= 1e12)) {
        table.reject(key, "must lie between 1e-6 and 1e12, or be 0 for copies that take no time");
    }
    return value;
}

uint64_t microseconds(const config::Table &table, const char *key) {
    const double value = table.number(key).value_or(0);
    if (!(value >= 0 && value <= 3.6e9)) {
        table.reject(key, "must lie between 0 and 3.6e9 microseconds (an hour)");
    }
    return static_cast<uint64_t>(std::llround(value * 1000));
}

template <class Integer>
Integer positive(const config::Table &table, const char *key, Integer otherwise, int64_t most) {
    const int64_t value = table.integer(key).value_or(static_cast<int64_t>(otherwise));
    if (value < 1 || value > most) {
        table.reject(key, "must be between 1 and " + std::to_string(most));
    }
    return static_cast<Integer>(value);
}

Profile read_profile(const std::string &path) {
    const config::Value value = config::load_config(path);
    const config::Table table(value, path);
    Profile profile;
    profile.name = table.text("name").value_or(path);
    profile.soc_name = table.text("soc_name").value_or(profile.soc_name);
    profile.ai_cores = positive<uint32_t>(table, "ai_cores", profile.ai_cores, 1024);
    profile.copy_engines = positive<uint32_t>(table, "copy_engines", profile.copy_engines, 1024);
    profile.memory_bytes = positive<uint64_t>(table, "memory_bytes", profile.memory_bytes, int64_t(1) << 50);
    profile.h2d_gbps = bandwidth(table, "h2d_gbps");
    profile.d2h_gbps = bandwidth(table, "d2h_gbps");
    profile.d2d_gbps = bandwidth(table, "d2d_gbps");
    profile.copy_latency_ns = microseconds(table, "copy_latency_us");
    profile.launch_overhead_ns = microseconds(table, "launch_overhead_us");
    profile.callback_latency_ns = microseconds(table, "callback_latency_us");
    profile.stream_limit = positive<uint32_t>(table, "stream_limit", profile.stream_limit, 1 << 16);
    profile.event_limit = positive<uint32_t>(table, "event_limit", profile.event_limit, 1 << 20);
    profile.notify_limit = positive<uint32_t>(table, "notify_limit", profile.notify_limit, 1 << 20);
    if (const auto models = table.table("models")) {
        for (const std::string &model : models->keys()) {
            const auto entry = models->table(model);
            profile.model_latency_ns[model] = microseconds(*entry, "latency_us");
            entry->finish();
        }
    }
    table.finish();
    return profile;
}

}  // namespace

uint64_t Profile::nominal_ns(Unit unit, uint64_t bytes) const {
    double gbps = 0;
    switch (unit) {
        case Unit::CopyIn: gbps = h2d_gbps; break;
        case Unit::CopyOut: gbps = d2h_gbps; break;
        case Unit::CopyDevice: gbps = d2d_gbps; break;
        default: return 0;
    }
    const double transfer = gbps > 0 ? static_cast<double>(bytes) / gbps : 0;
    return copy_latency_ns + static_cast<uint64_t>(transfer);
}

uint64_t Profile::model_ns(const std::string &model) const {
    const auto found = model_latency_ns.find(model);
    return found == model_latency_ns.end() ? 0 : found->second;
}

void set_profile_directory(const std::string &path) {
    std::lock_guard<std::mutex> lock(directory_mutex);
    *chosen_directory = path;
}

bool load_profile(const std::string &name_or_path, Profile *out, std::string *error) {
    if (name_or_path == "instant") {
        *out = Profile();
        return true;
    }
    std::string path = name_or_path;
    if (path.find('/') == std::string::npos && !exists(path)) {
        path = profile_directory() + "/" + name_or_path + ".toml";
    }
    if (!exists(path)) {
        *error =
            "no device profile '" + name_or_path + "': there is no file " + path +
            "; give the name of a profile (instant, inference-card, atlas-a2) or the path of a TOML file";
        return false;
    }
    try {
        *out = read_profile(path);
    } catch (const std::exception &problem) {
        *error = std::string("device profile: ") + problem.what();
        return false;
    }
    return true;
}

}  // namespace aclsim
