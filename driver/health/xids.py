"""The table of XIDs: what the error codes of the NVIDIA driver mean, and how bad each is.

Codes, meanings and actions are those of NVIDIA's catalog of XID errors (docs.nvidia.com/deploy/xid-errors);
the names of 173 and above are those of the open kernel modules. From driver R615 on an event has a severity,
which counts more than this table; an admin's own table counts more than both. None of it was seen on
hardware.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

XidClass = Literal["ignore", "informational", "application", "contained", "needs-reset", "needs-reboot"]
"""``ignore``: only counted, because an admin wants so. ``informational``: counted, and the GPU is checked.
``application``: the program on the GPU is at fault, the GPU is well. ``contained``: the program that was hit
has ended, the GPU goes on, and should be reset when it is free. ``needs-reset``, ``needs-reboot``: the GPU
does not work until then."""

XID_CLASSES: tuple[XidClass, ...] = get_args(XidClass)

MOST_XID = 2**16 - 1
"""Codes are small numbers; a larger one in a configuration is a mistake."""


@dataclass(frozen=True, slots=True)
class Xid:
    """A code of the table: its class, and its meaning in a few words."""

    xid_class: XidClass
    meaning: str


def _all(xid_class: XidClass, meaning: str, codes: Iterable[int]) -> dict[int, Xid]:
    return dict.fromkeys(codes, Xid(xid_class, meaning))


XIDS: Mapping[int, Xid] = {
    **_all("application", "a fault of the program that runs on it", (8, 11, 25, 32, 69, 80)),
    13: Xid("application", "a kernel of the program failed (graphics engine exception)"),
    31: Xid("application", "the program used memory that it does not have (page fault)"),
    43: Xid("application", "the program's work was stopped"),
    45: Xid("application", "the program's channels were cleaned up, after another fault or its end"),
    **_all("application", "a fault of a media engine's program", (60, 68, 82, 83, 84, 86, 88, 89)),
    **_all("application", "a fault of a media engine's program", (*range(96, 106), 139)),
    **_all("application", "a fault of a copy engine's program", (39, 40, 41, 70, 71, 72, 75, 76, 77)),
    **_all("application", "a fault of a copy engine's program", (85, *range(126, 136))),
    # The catalog asks for a reset. But a program that hangs causes it too, and both NVIDIA's device plugin
    # and NVIDIA's DRA driver ignore it. If the GPU itself is hit, the recovery action in NVML says so.
    109: Xid("application", "the program's work did not yield in time (context switch)"),
    174: Xid("application", "a program was ended (silent kill)"),
    **_all("informational", "no action needed", (14, 37, 38, 44, 66, 67, 93, 106, 107, 108)),
    **_all("informational", "no action needed", (137, 141, 152, 153, 157, 160, 161)),
    **_all("informational", "the state of a spare part of the memory has changed", range(162, 166)),
    **_all("informational", "an error of the encryption of an NVLink", (166, 170)),
    # A row or page that waits for a reset is read from NVML by each check, and has a taint of its own.
    63: Xid("informational", "a part of the memory is replaced at the next reset"),
    78: Xid("informational", "a vGPU did not start: the versions of its software do not fit"),
    92: Xid("informational", "many memory errors were corrected"),
    121: Xid("informational", "an error of the link to the CPU was corrected"),
    # The new recovery action is a field of NVML, which the check after the event reads.
    154: Xid("informational", "the recovery action has changed"),
    171: Xid("informational", "a detail of an error of the memory (DRAM)"),
    172: Xid("informational", "a detail of an error of the memory (SRAM)"),
    176: Xid("informational", "an error of the PCIe link was corrected"),
    # The reset that the catalog asks for can wait until the GPU is free.
    94: Xid("contained", "a memory error was contained: only the program that it hit has ended"),
    # NVLink 5. A sub-code decides how bad it is, which the event does not carry.
    **_all("contained", "an error of an NVLink", range(144, 151)),
    # People have to check these: no restart helps. Whether the GPU can be used is up to NVML's other answers.
    54: Xid("contained", "its power cable is not connected, or it runs slower because of too little power"),
    142: Xid("contained", "a fault of a media engine, which NVIDIA has to check"),
    159: Xid("contained", "an error of the link to the CPU, which memory shared with it may have hit"),
    46: Xid("needs-reset", "the GPU stopped processing"),
    48: Xid("needs-reset", "a memory error that cannot be corrected (double-bit ECC)"),
    62: Xid("needs-reset", "the GPU's power management processor halted"),
    64: Xid("needs-reset", "a part of the memory could not be replaced"),
    74: Xid("needs-reset", "an error of an NVLink"),
    95: Xid("needs-reset", "a memory error was not contained: any program on the GPU may be hit"),
    110: Xid("needs-reset", "a security fault"),
    119: Xid("needs-reset", "the GPU's system processor (GSP) does not answer"),
    120: Xid("needs-reset", "the GPU's system processor (GSP) failed"),
    136: Xid("needs-reset", "a link to another GPU could not be trained"),
    140: Xid("needs-reset", "a memory error that was not recovered (ECC)"),
    143: Xid("needs-reset", "the GPU could not be initialised"),
    155: Xid("needs-reset", "an NVLink could not be set up by the software"),
    156: Xid("needs-reset", "a resource of the GPU was retired"),
    158: Xid("needs-reset", "the GPU's memory is not ready"),
    173: Xid("needs-reset", "a fatal error of the link to the CPU"),
    175: Xid("needs-reset", "a fault of the memory subsystem"),
    79: Xid("needs-reboot", "the GPU fell off the bus"),
    151: Xid("needs-reboot", "a key of the GPU could not be changed"),
    167: Xid("needs-reboot", "a fatal time-out of the PCIe link"),
    168: Xid("needs-reboot", "the GPU runs with less memory than it has"),
    169: Xid("needs-reboot", "the GPU's security processor (SEC2) halted"),
}

# A newer driver may report codes that are not in the table. They keep new pods away until the GPU is known to
# be well: that costs little, and the code may be a bad one.
UNKNOWN = Xid("contained", "this version's table does not know it")


def meaning_of(code: int) -> Xid:
    """The class and meaning of a code."""
    return XIDS.get(code, UNKNOWN)
