"""A fake machine with its sysfs, and the Discovery that looks at it."""

from dataclasses import replace
from pathlib import Path

from driver.hardware.gpu import NOT_ASKED
from tests.gpus import Discovery, FakeMachine, Gpu, Guard, Inventory, build_sysfs

SHORT_SECONDS = 1.0


class Node:
    """A fake machine with its sysfs, and the Discovery that looks at it."""

    def __init__(self, machine: str, folder: Path, deadline_seconds: float = 5.0) -> None:
        self.machine = FakeMachine.open(machine)
        self.sysfs = build_sysfs(folder, self.machine)
        self.guard = Guard(deadline_seconds)
        self.discovery = Discovery(self.machine.nvml(), self.sysfs, self.guard)

    def unplug(self, gpu: int) -> None:
        """Take a GPU off the bus."""
        (self.sysfs / "bus/pci/devices" / str(self.machine.pci(gpu))).unlink()
        self.machine.remove(gpu)

    def bind(self, gpu: int, driver: str) -> None:
        """Hand a GPU to another kernel driver: NVML lists it no more."""
        pci = self.machine.pci(gpu)
        link = self.sysfs / "bus/pci/devices" / str(pci) / "driver"
        link.unlink()
        link.symlink_to(f"../../../../bus/pci/drivers/{driver}")
        self.machine.remove(pci)


def reasons(inventory: Inventory) -> dict[int, list[str]]:
    """What is wrong with each GPU, by index."""
    return {gpu.index: [problem.reason for problem in gpu.problems] for gpu in inventory.gpus if gpu.problems}


def without_problems(gpu: Gpu) -> Gpu:
    """The GPU as if nothing were wrong, and nobody had asked for it."""
    return replace(gpu, problems=(), condition=NOT_ASKED)
