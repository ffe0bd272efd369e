"""The running boot, and the folder for files that a reboot ends."""

from __future__ import annotations

import re
from pathlib import Path

_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
_BOOT_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


def running_boot_id() -> str:
    """The id of the running boot."""
    # The kernel draws it once per boot, as a random UUID (random(4)). Unlike a clock, it is never set or
    # repeated.
    return _BOOT_ID_FILE.read_text().strip()


def boot_folder(data: Path, boot_id: str = "") -> Path:
    """The folder in the plugin's own, ``data``, for what a reboot ends; without a boot id, of this boot."""
    return data / (boot_id or running_boot_id())


def is_boot_folder(path: Path) -> bool:
    """Whether a path is the folder of a boot, this one or another."""
    return bool(_BOOT_ID.fullmatch(path.name)) and path.is_dir() and not path.is_symlink()
