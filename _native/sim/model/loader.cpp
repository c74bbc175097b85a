// SPDX-License-Identifier: Apache-2.0
#include "model/loader.h"

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <sys/stat.h>
#include <unistd.h>

#include "model/model_error.h"
#include "model/onnx_file.h"

namespace aclsim {
namespace {

std::string extension(const std::string &path) {
    size_t dot = path.rfind('.'), slash = path.rfind('/');
    return dot == std::string::npos || (slash != std::string::npos && dot < slash) ? "" : path.substr(dot);
}

std::string directory_of(const std::string &path) {
    size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

std::string stem(const std::string &path) {
    size_t slash = path.rfind('/');
    std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
    return name.substr(0, name.size() - extension(name).size());
}

bool is_file(const std::string &path) {
    struct stat info{};
    return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

std::string read_model_file(const std::string &path) {
    struct stat info{};
    if (::stat(path.c_str(), &info) != 0) {
        throw ModelError(ACL_ERROR_GE_EXEC_MODEL_PATH_INVALID,
                         "model file '" + path + "': " + std::strerror(errno));
    }
    if (!S_ISREG(info.st_mode)) {
        throw ModelError(ACL_ERROR_GE_EXEC_MODEL_PATH_INVALID,
                         "model file '" + path + "' is " +
                             (S_ISDIR(info.st_mode) ? "a directory" : "not a regular file") +
                             "; give the path of an .onnx file or of a model description");
    }
    try {
        return config::read_file(path);
    } catch (const config::Error &error) {
        throw ModelError(ACL_ERROR_GE_EXEC_MODEL_PATH_INVALID, std::string("model file ") + error.what());
    }
}

// Tells one state of a file from the next without reading it.
std::string file_key(const std::string &path) {
    struct stat info{};
    char resolved[PATH_MAX];
    const char *real = ::realpath(path.c_str(), resolved);
    if (::stat(path.c_str(), &info) != 0 || !real) {
        return path;
    }
    return std::string(real) + "@" + std::to_string(info.st_mtim.tv_sec) + "." +
           std::to_string(info.st_mtim.tv_nsec) + "+" + std::to_string(info.st_size);
}

std::string content_key(std::string_view content) {
    return std::to_string(std::hash<std::string_view>{}(content)) + "+" + std::to_string(content.size());
}

void require_onnx(std::string_view content, const std::string &label) {
    switch (inspect_onnx(content)) {
        case OnnxState::Complete: return;
        case OnnxState::Truncated:
            throw ModelError(ACL_ERROR_GE_EXEC_MODEL_DATA_SIZE_INVALID,
                             label + " is an ONNX model that is cut off after " +
                                 std::to_string(content.size()) + " bytes; copy the file again");
        case OnnxState::NotOnnx:
            throw ModelError(ACL_ERROR_INVALID_FILE,
                             label + " is not a model: neither ONNX nor a model description in TOML or JSON");
    }
}

void require_content(std::string_view content, const std::string &label) {
    if (content.empty()) {
        throw ModelError(ACL_ERROR_GE_EXEC_MODEL_DATA_SIZE_INVALID, label + " is empty");
    }
    if (is_compiled_for_device(content)) {
        throw ModelError(
            ACL_ERROR_INVALID_FILE,
            label +
                " is compiled for an NPU, which the simulator cannot run; load the ONNX model it was "
                "compiled from, or a model description");
    }
}

void use_onnx_file(const std::string &path, const std::string &content, const std::string &label,
                   ModelSource *out) {
    require_content(content, label);
    require_onnx(content, label);
    out->onnx_path = path;
    out->onnx_bytes = content.size();
    out->key += "onnx " + file_key(path);
}

// `directory` as in read_description.
void use_description(std::string_view content, bool json, const std::string &source,
                     const std::optional<std::string> &directory, ModelSource *out) {
    try {
        config::Value value =
            json ? config::parse_json(content, source) : config::parse_toml(content, source);
        out->description = read_description(value, source, directory, out->name);
    } catch (const config::Error &error) {
        throw ModelError(ACL_ERROR_INVALID_FILE, std::string("model description ") + error.what());
    }
    out->name = out->description->name;
    out->key = "description " + out->name + " " + content_key(content) + " ";
    const std::string &onnx = out->description->onnx;
    if (!onnx.empty()) {
        use_onnx_file(onnx, read_model_file(onnx), "model file '" + onnx + "' (named by " + source + ")",
                      out);
    }
}

bool looks_like_json(std::string_view content) {
    size_t first = content.find_first_not_of(" \t\r\n");
    return first != std::string_view::npos && content[first] == '{';
}

ModelSource source_from_existing(const std::string &path) {
    ModelSource out;
    out.label = "model file '" + path + "'";
    out.name = stem(path);
    std::string content = read_model_file(path), kind = extension(path);
    require_content(content, out.label);
    bool description = kind == ".toml" || kind == ".json" || (kind != ".onnx" && is_text(content));
    if (description) {
        use_description(content, kind == ".json" || (kind != ".toml" && looks_like_json(content)), path,
                        directory_of(path), &out);
    } else {
        use_onnx_file(path, content, out.label, &out);
    }
    return out;
}

struct CacheEntry {
    std::mutex loading;  // one load of a model at a time; different models load side by side
    std::weak_ptr<Program> program;
};

}  // namespace

ModelSource source_from_file(const std::string &path) {
    if (extension(path) != ".om") {
        return source_from_existing(path);
    }
    const std::string base = path.substr(0, path.size() - 3);
    for (const char *kind : {".toml", ".json", ".onnx"}) {
        if (is_file(base + kind)) {
            return source_from_existing(base + kind);
        }
    }
    const std::string way_out =
        "put '" + stem(path) + ".onnx' or a model description '" + stem(path) + ".toml' beside it";
    if (!is_file(path)) {
        throw ModelError(ACL_ERROR_GE_EXEC_MODEL_PATH_INVALID,
                         "model file '" + path +
                             "': " + (::access(path.c_str(), F_OK) == 0 ? "not a file" : "No such file") +
                             "; the simulator would load the ONNX model instead: " + way_out);
    }
    throw ModelError(
        ACL_ERROR_INVALID_FILE,
        "model file '" + path + "' is compiled for an NPU, which the simulator cannot run; " + way_out);
}

ModelSource source_from_memory(std::string_view content) {
    ModelSource out;
    out.label = "model in memory";
    out.name = "memory";
    require_content(content, out.label);
    if (is_text(content)) {
        use_description(content, looks_like_json(content), out.label, std::nullopt, &out);
        return out;
    }
    require_onnx(content, out.label);
    out.onnx_content.assign(content);
    out.onnx_bytes = content.size();
    out.key = "memory " + content_key(content);
    return out;
}

std::shared_ptr<Program> obtain_program(const ModelSource &source) {
    static std::mutex *mutex = new std::mutex;
    static auto *cache = new std::map<std::string, std::shared_ptr<CacheEntry>>;
    std::shared_ptr<CacheEntry> entry;
    {
        std::lock_guard<std::mutex> lock(*mutex);
        for (auto it = cache->begin(); it != cache->end();) {  // what nobody has any more, nor is loading
            bool gone = it->second.use_count() == 1;
            if (gone) {
                std::lock_guard<std::mutex> settled(it->second->loading);
                gone = it->second->program.expired();
            }
            it = gone ? cache->erase(it) : std::next(it);
        }
        std::shared_ptr<CacheEntry> &slot = (*cache)[source.key];
        if (!slot) {
            slot = std::make_shared<CacheEntry>();
        }
        entry = slot;
    }
    std::lock_guard<std::mutex> lock(entry->loading);
    std::shared_ptr<Program> program = entry->program.lock();
    if (!program) {
        program = std::make_shared<Program>(source);
        entry->program = program;
    }
    return program;
}

}  // namespace aclsim
