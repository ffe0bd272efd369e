"""Gives up the rights of this process that it does not need, for good and before it starts a thread, and says
what rights others have.

A container that may use every device is privileged, and so has every capability; a process that only
reads has no use for them. The numbers are those of linux/capability.h and linux/prctl.h.
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
"""Reads and writes files whatever their mode and owner."""

CAP_SYS_ADMIN = 21
"""What NVML calls a privileged user: the NVIDIA kernel module asks for this capability, not for root."""

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
    """Users of a process, real and effective, its user namespace, and its capabilities there, as bits.

    ``bounding`` is the most that it can gain.
    """

    users: tuple[int, int]
    namespace: Path
    effective: int
    bounding: int

    def is_privileged(self, own: Rights) -> bool:
        """Whether it has rights over the node, as seen by a process of the node, which has ``own``.

        Root of a pod has few capabilities, and root of another user namespace has none in ours.
        """
        return self.namespace == own.namespace and bool(self.effective & 1 << CAP_SYS_ADMIN)


def rights_of(process: Path) -> Rights | None:
    """What the kernel lets a process do, by its folder below /proc; None where that cannot be seen."""
    try:
        with (process / "status").open(errors="replace") as file:
            status = file.read(_MOST_STATUS_BYTES)
        namespace = (process / "ns" / "user").readlink()
    except OSError:
        return None
    users, masks = _USERS.search(status), dict(_CAPABILITIES.findall(status))
    if users is None or "CapEff" not in masks:
        return None
    effective, bounding = (int(masks.get(name, "0"), 16) for name in ("CapEff", "CapBnd"))
    return Rights((int(users[1]), int(users[2])), namespace, effective, bounding)


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def keep_only(capabilities: Iterable[int]) -> None:
    """Drop all other capabilities of this thread and of those that it starts, and never gain any again.

    So it has to be called before there are others. Nothing is gained that was not there. What the kernel
    refuses to drop is logged and kept: a seccomp profile may forbid the calls.
    """
    kept = frozenset(capabilities)
    libc = ctypes.CDLL(None, use_errno=True)
    _drop_from_bounding_set(libc, kept)
    data = (_Data * 2)()
    header = _Header(_VERSION_3, 0)
    _check("reading capabilities", libc.capget(ctypes.byref(header), data))
    for index, word in enumerate(data):
        mask = sum(1 << (one - 32 * index) for one in kept if one // 32 == index)
        word.effective = word.permitted = word.permitted & mask
        word.inheritable = 0
    _check("dropping capabilities", libc.capset(ctypes.byref(header), data))
    _check("clearing ambient capabilities", _prctl(libc, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL))
    _check("giving up to gain rights", _prctl(libc, _PR_SET_NO_NEW_PRIVS, 1))


def _drop_from_bounding_set(libc: ctypes.CDLL, kept: frozenset[int]) -> None:
    """Take the others out of what a program could gain; that itself needs CAP_SETPCAP, and is tried only."""
    for capability in range(_MOST_CAPABILITIES):
        there = _prctl(libc, _PR_CAPBSET_READ, capability)
        if there < 0:
            return  # the kernel knows no more
        if there and capability not in kept:
            _prctl(libc, _PR_CAPBSET_DROP, capability)


def _prctl(libc: ctypes.CDLL, option: int, argument: int) -> int:
    answer: int = libc.prctl(option, *(ctypes.c_ulong(number) for number in (argument, 0, 0, 0)))
    return answer


def _check(doing: str, answer: int) -> None:
    if answer < 0:
        _log.warning("rights are kept", failed=doing, error=os.strerror(ctypes.get_errno()))
