"""Keeps a long-running process small. Its ``__main__`` imports this module before anything else.

Importing it is all that is needed.
"""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8

# By default glibc makes up to eight heaps for each core, which grow to several MiB each (mallopt(3),
# M_ARENA_MAX). Two are enough for threads that mostly wait. Other C libraries have no mallopt.
if hasattr(_libc := ctypes.CDLL(None), "mallopt"):
    _libc.mallopt(_M_ARENA_MAX, 2)
