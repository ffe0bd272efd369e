"""Mounts for MPS daemons, by system calls. Run as a program, it starts a daemon with a /dev/shm of its own.

The program is started by its path and imports nothing of this project: it runs before the daemon in the
daemon's process, and an interpreter that finds no packages starts faster.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

# The numbers of mount(2), unshare(2) and umount2(2) in the kernel's headers; Python has no names for them.
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_BIND, MS_REC, MS_SLAVE = 4096, 16384, 1 << 19
_CLONE_NEWNS = 0x20000
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8
_SHM = "/dev/shm"  # noqa: S108 - the kernel's place for it


def mount_tmpfs(path: str, size_mib: int, mode: int, most_files: int) -> None:
    """Mount a tmpfs of a limited size, with noexec; raises OSError."""
    options = f"size={size_mib}m,mode={mode:o},nr_inodes={most_files}"
    _mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options)


def unmount(path: str) -> None:
    """Unmount; raises OSError, also if the path is a symbolic link."""
    # MNT_DETACH removes the mount from the tree at once; processes that use it keep it until they end.
    _check(_libc().umount2(os.fsencode(path), _MNT_DETACH | _UMOUNT_NOFOLLOW), path)


def run_with_shm(shm: str, environment: dict[str, str], command: list[str]) -> None:
    """Become a program that sees the folder ``shm`` as /dev/shm, which nobody else does; raises OSError."""
    _check(_libc().unshare(_CLONE_NEWNS), "a mount namespace")
    # As slaves, the mounts here follow mounts and unmounts of the host, and the bind below stays in here.
    _mount(None, "/", None, MS_REC | MS_SLAVE, None)
    _mount(shm, _SHM, None, MS_BIND, None)
    os.execve(command[0], command, environment)  # noqa: S606 - no shell is wanted


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind, options)]
    # The flags are an unsigned long, which ctypes would pass as an int.
    _check(_libc().mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]), target)


def _libc() -> ctypes.CDLL:
    # None is the program itself, so the C library that Python runs with.
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, name: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


if __name__ == "__main__":
    try:
        run_with_shm(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:])
    except OSError as error:
        sys.exit(f"cannot start with its own /dev/shm: {error}")
