// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "check.h"

int main(int argc, char **argv) {
    alarm(300);  // a test that hangs ends here
    return check::run(argc, argv);
}
