# SPDX-License-Identifier: Apache-2.0
"""What the environment says of debug mode. Read once, when aioascend is imported."""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass
class Settings:
    """How debug mode is set.

    Attributes:
        enabled: AIOASCEND_DEBUG=1.
        slow: AIOASCEND_DEBUG_SLOW: seconds that a loop may take to come round.
        stall: AIOASCEND_DEBUG_STALL: seconds that an awaited stream may stand still.
    """

    enabled: bool = False
    slow: float = 0.1
    stall: float = 10.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        switch = environment.get("AIOASCEND_DEBUG", "")
        if switch not in ("", "0", "1"):
            raise ValueError(f"AIOASCEND_DEBUG must be 1 (debug mode), 0 or unset, not {switch!r}")
        return cls(
            enabled=switch == "1",
            slow=_seconds(environment, "AIOASCEND_DEBUG_SLOW", cls.slow),
            stall=_seconds(environment, "AIOASCEND_DEBUG_STALL", cls.stall),
        )


def _seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < 1e6:  # false for what is not a number, too
        raise ValueError(f"{name} must be seconds above 0, such as {default}, not {text!r}")
    return value


settings = Settings.from_environment(os.environ)

if settings.enabled and not sys.warnoptions:
    # Who asks for debug mode wants to see what leaks, which Python does not show by default.
    warnings.filterwarnings("default", category=ResourceWarning, module=r"aioascend\.")
