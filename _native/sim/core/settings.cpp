// SPDX-License-Identifier: Apache-2.0
#include "core/settings.h"

namespace aclsim {

Settings &settings() {
    static Settings *instance = new Settings;
    return *instance;
}

void Settings::reset() {
    queue_depth = default_queue_depth;
    pageable_blocks = true;
    strict = false;
    poison_free = true;
    exceptions_on_reap = false;
    models_have_streams = false;
    shuffle_reports = false;
}

}  // namespace aclsim
