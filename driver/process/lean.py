"""Keeps a long-running process small. Its ``__main__`` imports this module before anything else.

Importing it is all that is needed.
"""

from __future__ import annotations

import ctypes
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Any, cast

# mallopt(3). By default glibc makes up to eight heaps for each core, which grow to several MiB each, and it
# keeps more of what was freed the larger it was. One heap is enough for threads that mostly wait, and what is
# free goes back to the kernel. Other C libraries have no mallopt.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGE_BYTES = 64 << 10

LATER = ("asyncio", "grpc.aio", "urllib3.http2", "google.protobuf.internal.python_message")
"""Modules that libraries import without using them: 0.8 to 1.5 MiB each, with what they import themselves.

They are asyncio for gRPC and structlog, gRPC for asyncio, HTTP/2 for urllib3 (with zipfile and
importlib.metadata), and the messages of Protocol Buffers' Python implementation, where the one in C is in
use.
"""


class _Later(ModuleType):
    """A module that runs when one of its names is first used. Its submodules can be imported without that."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return import_module(f"{self.__name__}.{name}")
        except ModuleNotFoundError:
            package = self.__name__.rpartition(".")[0]
            spec = PathFinder.find_spec(self.__name__, sys.modules[package].__path__ if package else None)
            if spec is None or spec.loader is None or self.__spec__ is not None:
                raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None
            self.__spec__, self.__file__ = spec, spec.origin
            spec.loader.exec_module(self)
            return getattr(self, name)


def _load_later(name: str) -> None:
    package, _, rest = name.partition(".")
    module = _Later(name)
    module.__package__ = name
    if (found := find_spec(package)) is not None and name not in sys.modules:
        module.__path__ = [
            "/".join((folder, *rest.split("."))) for folder in found.submodule_search_locations or ()
        ]
        sys.modules[name] = module


if hasattr(_libc := ctypes.CDLL(None), "mallopt"):
    _libc.mallopt(_M_ARENA_MAX, 1)
    _libc.mallopt(_M_TRIM_THRESHOLD, _LARGE_BYTES)
    _libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
for _name in LATER:
    _load_later(_name)
# structlog imports rich if it is installed, for console output that a service never writes. None in
# sys.modules makes the import fail as if it were not installed.
if "rich" not in sys.modules:
    cast("dict[str, Any]", sys.modules)["rich"] = None
