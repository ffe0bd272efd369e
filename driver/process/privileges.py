"""Gives up the rights that this process does not need, and finds out which rights other processes have.

A container that may use every device is privileged, and so has every capability. A process that only reads
does not need them. The numbers are those of linux/capability.h and linux/prctl.h.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from driver.process.log import get_logger

CAP_DAC_OVERRIDE = 1
"""The right to read and write files whatever their mode and owner."""

CAP_SYS_ADMIN = 21
"""What NVML calls a privileged user: the NVIDIA kernel module asks for this capability, not for user 0."""

# _LINUX_CAPABILITY_VERSION_3: 64 bits of capabilities, as two structs of 32 bits each.
_VERSION_3 = 0x20080522
_PR_CAPBSET_READ, _PR_CAPBSET_DROP = 23, 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_MOST_CAPABILITIES = 64

_USERS = re.compile(r"^Uid:\s*(\d+)\s+(\d+)", re.MULTILINE)
_CAPABILITIES = re.compile(r"^(CapEff|CapBnd):\s*([0-9a-f]+)$", re.MULTILINE)
_MOST_STATUS_BYTES = 64 * 1024

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Rights:
    """The real and the effective user of a process, its user namespace, and its capabilities there, as bits.

    ``bounding`` are all capabilities that it can ever gain.
    """

    users: tuple[int, int]
    namespace: Path
    effective: int
    bounding: int

    def is_privileged(self, own: Rights) -> bool:
        """Whether the process has rights over the node. ``own`` are the rights of a process of the node."""
        # Root of a pod has few capabilities, and root of another user namespace has none in ours.
        return self.namespace == own.namespace and bool(self.effective & 1 << CAP_SYS_ADMIN)


def rights_of(process: Path) -> Rights | None:
    """The rights of a process, by its folder in /proc; None if they cannot be read."""
    try:
        # A process may end at any time, and its name, which status contains, may be any bytes.
        with (process / "status").open(errors="replace") as file:
            status = file.read(_MOST_STATUS_BYTES)
        namespace = (process / "ns" / "user").readlink()
    except OSError:
        return None
    # Uid has four numbers: real, effective, saved, file system.
    users, masks = _USERS.search(status), dict(_CAPABILITIES.findall(status))
    if users is None or "CapEff" not in masks:
        return None
    effective, bounding = (int(masks.get(name, "0"), 16) for name in ("CapEff", "CapBnd"))
    return Rights((int(users[1]), int(users[2])), namespace, effective, bounding)


# __user_cap_header_struct and __user_cap_data_struct of linux/capability.h.
class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def keep_only(capabilities: Iterable[int]) -> None:
    """Drop all other capabilities of this thread and of the threads that it starts, for ever.

    Call it before any other thread exists. No capability is gained. What the kernel refuses to drop is logged
    and kept, since a seccomp profile may forbid the calls.
    """
    kept = frozenset(capabilities)
    libc = ctypes.CDLL(None, use_errno=True)
    # First, since dropping from the bounding set itself needs CAP_SETPCAP, which goes below.
    _drop_from_bounding_set(libc, kept)
    data = (_Data * 2)()
    # pid 0 is the calling thread. The kernel keeps capabilities per thread, not per process.
    header = _Header(_VERSION_3, 0)
    _check("reading capabilities", libc.capget(ctypes.byref(header), data))
    for index, word in enumerate(data):
        mask = sum(1 << (one - 32 * index) for one in kept if one // 32 == index)
        word.effective = word.permitted = word.permitted & mask
        word.inheritable = 0
    _check("dropping capabilities", libc.capset(ctypes.byref(header), data))
    # Ambient capabilities would come back in every program that this process executes.
    _check("clearing ambient capabilities", _prctl(libc, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL))
    # From here on executing a set-user-ID file gains nothing (prctl(2), PR_SET_NO_NEW_PRIVS).
    _check("giving up the right to gain more", _prctl(libc, _PR_SET_NO_NEW_PRIVS, 1))


def _drop_from_bounding_set(libc: ctypes.CDLL, kept: frozenset[int]) -> None:
    """Take the others out of what a program that is executed could gain."""
    for capability in range(_MOST_CAPABILITIES):
        there = _prctl(libc, _PR_CAPBSET_READ, capability)
        # EINVAL: the kernel has no capability of this number or above.
        if there < 0:
            return
        if there and capability not in kept:
            _prctl(libc, _PR_CAPBSET_DROP, capability)


def _prctl(libc: ctypes.CDLL, option: int, argument: int) -> int:
    answer: int = libc.prctl(option, *(ctypes.c_ulong(number) for number in (argument, 0, 0, 0)))
    return answer


def _check(doing: str, answer: int) -> None:
    if answer < 0:
        _log.warning("cannot drop all rights", failed=doing, error=os.strerror(ctypes.get_errno()))
