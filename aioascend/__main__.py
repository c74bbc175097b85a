# SPDX-License-Identifier: Apache-2.0
"""`python -m aioascend`."""

import sys

from aioascend.cli import main

sys.exit(main())
