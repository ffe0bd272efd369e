"""Says where this machine keeps what is expensive to make again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def user_cache(environment: Mapping[str, str]) -> Path:
    """The folder for the caches of this project (XDG base directory specification); it may not be there."""
    base = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or Path.home(), ".cache")
    return Path(base, "gpu-dra")
