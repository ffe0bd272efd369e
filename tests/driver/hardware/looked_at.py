"""A fake machine with its sysfs, and the Discovery that looks at it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

from driver.hardware.gpu import NOT_ASKED
from tests.gpus import Discovery, FakeMachine, Gpu, Guard, Inventory, build_sysfs

SHORT_SECONDS = 1.0


class Node:
    """A fake machine with its sysfs, and the Discovery that looks at it."""

    def __init__(self, machine: str, folder: Path, deadline_seconds: float = 5.0) -> None:
        self.machine = FakeMachine.open(machine)
        self.sysfs = build_sysfs(folder, self.machine)
        self.guard = Guard(deadline_seconds)
        self.nvml = self.machine.nvml()
        self.discovery = Discovery(self.nvml, self.sysfs, self.guard, self.machine.fabric.manager())

    @classmethod
    @contextmanager
    def looking(cls, machine: str, folder: Path, deadline_seconds: float = 5.0) -> Iterator[Self]:
        """One that looks for a while; what hangs then is let go."""
        node = cls(machine, folder, deadline_seconds)
        try:
            yield node
        finally:
            node.machine.heal()
            node.guard.close()

    def has_session(self) -> bool:
        """Whether NVML is held."""
        return self.nvml.session.number is not None

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
