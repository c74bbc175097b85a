// SPDX-License-Identifier: Apache-2.0
#pragma once

// The library is built with hidden visibility; only what carries this mark is exported.
#define ACL_EXPORT __attribute__((visibility("default")))
