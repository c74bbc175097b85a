// SPDX-License-Identifier: Apache-2.0
// Prints the files that its arguments name as JSON, one line each; a file that cannot be read as "error:
// <message>".
#include <iostream>

#include "config/value.h"

int main(int argc, char **argv) {
    for (int i = 1; i < argc; ++i) {
        try {
            std::cout << aclsim::config::load_config(argv[i]).dump() << "\n";
        } catch (const aclsim::config::Error &error) {
            std::cout << "error: " << error.what() << "\n";
        }
    }
}
