"""Keeps a long-running process small; imported by its ``__main__`` before anything else.

Importing this module has two effects. glibc gives threads two heaps instead of eight for each core,
which otherwise grow to several MiB each (mallopt(3), M_ARENA_MAX). And rich stays out: structlog
imports it for its console output, which a service never uses, wherever it is installed.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, cast

_M_ARENA_MAX = -8

if hasattr(_libc := ctypes.CDLL(None), "mallopt"):
    _libc.mallopt(_M_ARENA_MAX, 2)
if "rich" not in sys.modules:
    cast("dict[str, Any]", sys.modules)["rich"] = None
