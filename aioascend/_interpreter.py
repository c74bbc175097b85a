# SPDX-License-Identifier: Apache-2.0
"""Imported before anything compiled: refuses subinterpreters.

The first interpreter that loads the extension keeps it, and the others are refused with words that help nobody; a
subinterpreter that came first would lock the main one out.
"""

from __future__ import annotations


def _is_main() -> bool:
    try:
        import ctypes
    except ImportError:  # Python 3.12: it refuses subinterpreters itself
        return False
    address = ctypes.PYFUNCTYPE(ctypes.c_void_p)
    here = address(("PyInterpreterState_Get", ctypes.pythonapi))
    main = address(("PyInterpreterState_Main", ctypes.pythonapi))
    return bool(here() == main())


if not _is_main():
    raise ImportError(
        "aioascend cannot be used in a subinterpreter, because a process has one ACL library and one numpy for all of "
        "them; use threads, or processes started with the 'spawn' method"
    )
