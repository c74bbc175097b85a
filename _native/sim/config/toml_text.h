// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace aclsim::config {

// In quotes and on one line whatever the text holds, for messages.
std::string quoted(const std::string &text);

// Bytes of the UTF-8 character that starts the text; 0 when none does.
size_t character_length(std::string_view text);

}  // namespace aclsim::config
