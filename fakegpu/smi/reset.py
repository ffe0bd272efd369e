"""The reset of GPUs by nvidia-smi: refused while anybody has one open, as the real one does.

Of GPUs before Ampere all that NVLinks connect have to be named together. A lost one stays lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from driver.errors import ConfigError
from driver.nvml.api import Code

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from driver.nvml.pci_address import PciAddress
    from fakegpu.machine.fake_machine import FakeMachine
    from fakegpu.machine.spec import MachineSpec

TOGETHER = frozenset({"Pascal", "Volta", "Turing"})
"""Before Ampere no GPU with NVLinks is reset by itself (nvidia-smi(1), --gpu-reset)."""

_IN_USE = (
    "currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, graphics "
    "application such as an X server, or a monitoring application such as another instance of nvidia-smi). "
    "Please first kill all processes using {} and all compute applications running in the system."
)


def reset_gpus(machine: FakeMachine, gpus: Sequence[PciAddress], say: Callable[[str], None]) -> int:
    """Reset the GPUs together, or say why not; the exit code."""
    for pci in gpus:
        if machine.state.gpus[pci].lost:
            say(f"Unable to determine the device handle for GPU {pci}: GPU is lost. Reboot the system")
            return int(Code.GPU_IS_LOST)
    lacking = sorted(set().union(*(linked(machine.spec, pci) for pci in gpus)).difference(gpus))
    if lacking:
        names = ", ".join(map(_bus_id, lacking))
        say(f"GPUs that are connected by NVLink have to be reset together; also name {names}")
        return int(Code.INVALID_ARGUMENT)
    holds = machine.nvml().store.holds
    used = [pci for pci in gpus if holds.is_held(pci) or machine.state.gpus[pci].process_ids]
    if not used:
        used = [pci for pci in gpus if not _reset(machine, pci, say)]
    if used:
        say("The following GPUs could not be reset:")
        for pci in used:
            say(f"  GPU {_bus_id(pci)}: In use by another client")
        devices, them = (
            ("1 device is", "this device")
            if len(used) == 1
            else (f"{len(used)} devices are", "these devices")
        )
        say(f"\n{devices} {_IN_USE.format(them)}")
        return int(Code.IN_USE)
    say("All done.")
    return 0


def _reset(machine: FakeMachine, pci: PciAddress, say: Callable[[str], None]) -> bool:
    """Whether it was reset; not while CUDA clients are there, in partitions too."""
    try:
        machine.reset(pci)
    except ConfigError:
        return False
    say(f"GPU {_bus_id(pci)} was successfully reset.")
    return True


def linked(spec: MachineSpec, pci: PciAddress) -> set[PciAddress]:
    """The GPUs that have to be reset with one, that one among them."""
    found, following = {pci}, [pci]
    while spec.product.architecture in TOGETHER and following:
        for end in spec.slot(following.pop()).links:
            others = {end.remote} if end.remote else set()
            if end.kind == "switch":
                others = {slot.pci for slot in spec.slots if any(one.kind == "switch" for one in slot.links)}
            for other in others - found:
                if other is not None:
                    found.add(other)
                    following.append(other)
    return found


def _bus_id(pci: PciAddress) -> str:
    return f"{pci.domain:08X}:{pci.bus:02X}:{pci.device:02X}.{pci.function:X}"
