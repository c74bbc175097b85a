// SPDX-License-Identifier: Apache-2.0
// Datasets: the ordered buffers of an execution. They own neither the buffers nor the memory.
#include <atomic>

#include "core/errors.h"
#include "export.h"
#include "model/dataset.h"

namespace aclsim {

LiveHandles<aclmdlDataset> &datasets() {
    static auto *live = new LiveHandles<aclmdlDataset>("datasets");
    return *live;
}

namespace {

aclError not_a_dataset(const aclmdlDataset *dataset) {
    return fail(ACL_ERROR_INVALID_PARAM, "dataset %p was not created by aclmdlCreateDataset or is destroyed",
                static_cast<const void *>(dataset));
}

// Null, with the error recorded, when there is no such dataset or no such buffer in it.
const aclmdlDataset::Item *find_item(const aclmdlDataset *dataset, size_t index) {
    if (!datasets().contains(dataset)) {
        not_a_dataset(dataset);
        return nullptr;
    }
    if (index < dataset->items.size()) {
        return &dataset->items[index];
    }
    fail(ACL_ERROR_INVALID_PARAM, "index %zu of a dataset that holds %zu buffers", index,
         dataset->items.size());
    return nullptr;
}

}  // namespace
}  // namespace aclsim

using namespace aclsim;

extern "C" {

ACL_EXPORT aclmdlDataset *aclmdlCreateDataset() {
    ACL_ENTER_OR(aclmdlCreateDataset, nullptr);
    static std::atomic<uint64_t> last_serial{0};
    auto dataset = std::make_unique<aclmdlDataset>();
    dataset->serial = ++last_serial;
    return datasets().add(std::move(dataset));
}

ACL_EXPORT aclError aclmdlDestroyDataset(const aclmdlDataset *dataset) {
    ACL_ENTER(aclmdlDestroyDataset);
    return datasets().remove(dataset) ? ACL_SUCCESS : not_a_dataset(dataset);
}

ACL_EXPORT aclError aclmdlAddDatasetBuffer(aclmdlDataset *dataset, aclDataBuffer *dataBuffer) {
    ACL_ENTER(aclmdlAddDatasetBuffer);
    if (!datasets().contains(dataset)) {
        return not_a_dataset(dataset);
    }
    if (!data_buffers().contains(dataBuffer)) {
        return fail(ACL_ERROR_INVALID_PARAM,
                    "data buffer %p was not created by aclCreateDataBuffer or is destroyed",
                    static_cast<const void *>(dataBuffer));
    }
    dataset->items.push_back({dataBuffer, nullptr});
    return ACL_SUCCESS;
}

ACL_EXPORT size_t aclmdlGetDatasetNumBuffers(const aclmdlDataset *dataset) {
    ACL_ENTER_OR(aclmdlGetDatasetNumBuffers, 0);
    if (datasets().contains(dataset)) {
        return dataset->items.size();
    }
    not_a_dataset(dataset);
    return 0;
}

ACL_EXPORT aclDataBuffer *aclmdlGetDatasetBuffer(const aclmdlDataset *dataset, size_t index) {
    ACL_ENTER_OR(aclmdlGetDatasetBuffer, nullptr);
    const aclmdlDataset::Item *item = find_item(dataset, index);
    return item ? item->buffer : nullptr;
}

ACL_EXPORT aclError aclmdlSetDatasetTensorDesc(aclmdlDataset *dataset, aclTensorDesc *tensorDesc,
                                               size_t index) {
    ACL_ENTER(aclmdlSetDatasetTensorDesc);
    const aclmdlDataset::Item *item = find_item(dataset, index);
    if (!item) {
        return ACL_ERROR_INVALID_PARAM;
    }
    if (!tensor_descs().contains(tensorDesc)) {
        return fail(ACL_ERROR_INVALID_PARAM,
                    "tensor description %p was not created by aclCreateTensorDesc or is destroyed",
                    static_cast<const void *>(tensorDesc));
    }
    // A copy, so that the caller may destroy its own at once.
    dataset->items[index].desc = std::make_unique<aclTensorDesc>(*tensorDesc);
    return ACL_SUCCESS;
}

ACL_EXPORT aclTensorDesc *aclmdlGetDatasetTensorDesc(const aclmdlDataset *dataset, size_t index) {
    ACL_ENTER_OR(aclmdlGetDatasetTensorDesc, nullptr);
    const aclmdlDataset::Item *item = find_item(dataset, index);
    return item ? item->desc.get() : nullptr;
}

}  // extern "C"
