"""Rules by which a fake machine goes wrong: calls of NVML, commands to MPS daemons, writes to sysfs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from driver.nvml.pci_address import PciAddress

ANY = "*"
"""A rule with this for its call or command hits all of them."""

MPS_START = "start"
"""What a rule calls the start of an MPS control daemon, which has no word in the daemon's language."""

CUDA_CALLS = frozenset(
    {
        "cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName",
        "cuDeviceGetUuid_v2", "cuDeviceTotalMem_v2", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain",
        "cuDevicePrimaryCtxRelease_v2", "cuMemGetInfo_v2", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemsetD8_v2",
        "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuModuleLoadData", "cuModuleGetFunction", "cuModuleUnload",
        "cuLaunchKernel", "cuCtxSynchronize",
    }
)  # fmt: skip
"""The calls of the CUDA driver API that rules can spoil, by the names of their symbols."""

KERNEL_LAUNCH = "cuLaunchKernel"
"""With a rule that lies about it, kernels compute wrongly."""

MpsFaultKind = Literal["hang", "die", "lie", "refuse"]
KernelFaultKind = Literal["fail", "hang", "ignore", "die-before", "die-after"]


@dataclass(frozen=True, slots=True)
class CallFault:
    """A rule that spoils the NVML calls of the method ``call``, on the GPU at ``pci`` or, with None, on any.

    The call may be one of CUDA_CALLS, too. ``code`` is the return code to fail with. Without a code, calls
    take ``seconds`` longer; without either, they hang for as long as the rule exists. ``times`` counts down
    with each call that the rule hits; None never ends. With ``after`` the call does its work before it fails.
    With ``lie`` a call that changes a GPU reports success and does nothing.
    """

    number: int
    call: str
    pci: PciAddress | None
    code: int | None
    times: int | None = None
    seconds: float | None = None
    after: bool = False
    lie: bool = False

    def hits(self, call: str, pci: PciAddress | None) -> bool:
        """Whether the rule spoils this call."""
        return self.call in (ANY, call) and self.pci in (None, pci)


@dataclass(frozen=True, slots=True)
class MpsFault:
    """A rule for the MPS control daemons that serve the GPU at ``pci``, or, with None, for all of them.

    ``command`` is a word of the daemon's language, MPS_START, or ANY. ``hang``: the daemon does nothing for
    as long as the rule exists. ``die``: it exits without an answer once it has executed the command.
    ``lie``: a command that sets a limit succeeds, but sets ``words`` instead of the value in the command.
    ``refuse``: it answers ``words`` and does nothing; a start fails with them. ``times`` counts down, None
    never ends.
    """

    number: int
    kind: MpsFaultKind
    command: str
    pci: PciAddress | None
    words: str = ""
    times: int | None = None

    def hits(self, command: str, gpus: tuple[PciAddress, ...]) -> bool:
        """Whether the rule spoils this command of a daemon that serves these GPUs."""
        return self.command in (ANY, command) and (self.pci is None or self.pci in gpus)


@dataclass(frozen=True, slots=True)
class KernelFault:
    """A rule that spoils writes to files whose path below the root of sysfs contains ``words``.

    ``fail`` makes the write fail with the errno ``error``, ``ignore`` lets it succeed without any effect, and
    ``hang`` makes it hang for as long as the rule exists. The other two kill the process before or after the
    write. ``times`` counts down; None never ends.
    """

    number: int
    words: str
    kind: KernelFaultKind
    error: int = 0
    times: int | None = None


R = TypeVar("R", CallFault, MpsFault, KernelFault)


def after_hit(rules: Iterable[R], number: int) -> tuple[R, ...]:
    """The rules after the one with this number has hit once; the last hit of a counted rule removes it."""
    kept = []
    for rule in rules:
        if rule.number != number or rule.times is None:
            kept.append(rule)
        elif rule.times > 1:
            kept.append(replace(rule, times=rule.times - 1))
    return tuple(kept)
