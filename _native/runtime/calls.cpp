// SPDX-License-Identifier: Apache-2.0
// Single ACL calls with the device's context set.
#include "context_guard.h"
#include "device.h"
#include "process.h"

namespace aioascend {
namespace {

template <typename Call>
aclError in_context(const Device &device, Call call) {
    if (forked()) {
        return ACL_ERROR_RT_INTERNAL_ERROR;  // which the caller reports as what it is
    }
    if (device.ended()) {  // its context may be somebody else's by now
        return ACL_ERROR_RT_CONTEXT_NULL;
    }
    ContextGuard guard(device.api(), device.context());
    return guard.status() != 0 ? guard.status() : call();
}

// The same for what may take its time.
template <typename Call>
aclError in_long_call(Device &device, Call call) {
    if (forked()) {
        return ACL_ERROR_RT_INTERNAL_ERROR;
    }
    if (!device.begin_call(false)) {
        return ACL_ERROR_RT_CONTEXT_NULL;
    }
    const aclError code = in_context(device, call);
    device.end_call();
    return code;
}

}  // namespace

aclError Device::create_event(bool timed, aclrtEvent &out) {
    const aclError code = in_context(*this, [&] {
        return can().event_ex ? api().aclrtCreateEventExWithFlag(
                                    &out, timed ? ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE : ACL_EVENT_SYNC)
                              : api().aclrtCreateEvent(&out);
    });
    if (code == 0) {
        std::lock_guard<std::mutex> lock(events_mutex_);
        events_.insert(out);
    }
    return code;
}

void Device::destroy_event(aclrtEvent event) {
    if (forked()) {
        return;
    }
    {
        std::lock_guard<std::mutex> lock(events_mutex_);
        if (events_.erase(event) == 0 || handles_gone_) {
            return;
        }
    }
    api().aclrtDestroyEvent(event);  // never blocks, and is allowed while waits for it are queued
}

bool Device::event_complete(aclrtEvent event) {
    if (forked() || ended()) {
        return false;
    }
    if (can().query_event_status) {
        aclrtEventRecordedStatus status;
        return api().aclrtQueryEventStatus(event, &status) == 0 && status == ACL_EVENT_RECORDED_STATUS_COMPLETE;
    }
    aclrtEventStatus status;
    return api().aclrtQueryEvent(event, &status) == 0 && status == ACL_EVENT_STATUS_COMPLETE;
}

aclError Device::memory_info(size_t &free, size_t &total) {
    return in_context(*this, [&] {
        aclError code = api().aclrtGetMemInfo(ACL_HBM_MEM, &free, &total);
        if (code == 0 && total == 0) {  // a card without HBM
            code = api().aclrtGetMemInfo(ACL_DDR_MEM, &free, &total);
        }
        return code;
    });
}

int64_t Device::ai_cores() {
    int64_t cores = 0;
    const bool known =
        can().device_info && api().aclrtGetDeviceInfo(index_, ACL_DEV_ATTR_AICORE_CORE_NUM, &cores) == 0;
    return known ? cores : 0;
}

aclError Device::load_model(const std::string &path, uint32_t &id) {
    return in_long_call(*this, [&] { return api().aclmdlLoadFromFile(path.c_str(), &id); });
}

aclError Device::load_model(const void *data, size_t size, uint32_t &id) {
    return in_long_call(*this, [&] { return api().aclmdlLoadFromMem(data, size, &id); });
}

aclError Device::describe_model(LoadedModel &model, ModelDescription &out, std::string &where) {
    return in_context(*this, [&] {
        model.desc = api().aclmdlCreateDesc();
        if (const aclError code = api().aclmdlGetDesc(model.desc, model.id)) {
            where = "aclmdlGetDesc";
            return code;
        }
        return aioascend::describe_model(model, can(), out, where);
    });
}

aclError Device::unload_model(LoadedModel &model) {
    std::lock_guard<std::mutex> lock(model.execute_mutex);
    model.unloaded = model.unloaded || ended();
    if (model.unloaded) {
        return 0;
    }
    if (!begin_call(true)) {  // it goes with the device
        model.unloaded = true;
        return 0;
    }
    const aclError code = in_context(*this, [&] { return api().aclmdlUnload(model.id); });
    end_call();
    model.unloaded = code == 0 || fault() != 0;  // a lost device keeps what it was running until it is reset by force
    return model.unloaded ? 0 : code;
}

void Device::unload_model_soon(uint32_t id) {
    if (!closed() && !forked() && !shutting_down()) {
        worker_.post([this, id] { in_context(*this, [&] { return api().aclmdlUnload(id); }); });
    }
}

aclError Device::execute_now(Execution &execution) {
    return in_long_call(*this, [&] { return execution.issue(nullptr); });
}

void Device::hold_runs(LoadedModel &model, bool on) {
    model.hold = on ? ++model.holds : 0;
    if (!on && !closed()) {
        worker_.post([this] { unblock_streams(); });
    }
}

aclError Device::copy_now(void *dst, const void *src, size_t size, aclrtMemcpyKind direction) {
    return in_long_call(*this, [&] { return api().aclrtMemcpy(dst, size, src, size, direction); });
}

bool Device::is_pinned(const void *address, size_t size) {
    if (forked()) {
        return false;
    }
    if (pinned_memory_.contains(address, size)) {
        return true;
    }
    if (!can().pointer_attributes) {
        return false;  // staging is right for any host memory
    }
    aclrtPtrAttributes attributes{};
    return api().aclrtPointerGetAttributes(address, &attributes) == 0 &&
           attributes.location.type == ACL_MEM_LOCATION_TYPE_HOST;
}

}  // namespace aioascend
