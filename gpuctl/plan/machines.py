"""The machines that can be pretended, and what each of them is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fakegpu.machine.spec import MachineSpec, instance_types, known_machines, load_machine
from fakegpu.sysfs.functions import functions_of
from gpuctl.cli.output import columns


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that ships with the driver, or one that a file describes."""

    name: str
    description: str
    product: str
    architecture: str | None
    """Absent if NVML gives a number that no word stands for."""

    gpus: int
    memory_bytes: int | None
    mig: bool
    """Whether MIG can cut its GPUs."""

    mig_enabled: tuple[str, ...]
    """The PCI addresses of GPUs in MIG mode."""

    nvlinks: int
    """Active NVLinks of a GPU, at most."""

    virtualization: str
    numa_nodes: int
    """0 if the firmware tells none."""

    iommu_groups: int | None
    """The number of IOMMU groups of its GPUs; absent without an IOMMU."""

    driver_version: str
    cuda_driver_version: str


@dataclass(frozen=True, slots=True)
class MachineList:
    """What `gpuctl plan --machines` prints: the machines that can be simulated."""

    items: tuple[Machine, ...]


def machines(names: Sequence[str]) -> MachineList:
    """The machines with these names or in these files, or all with the instance types last; ConfigError."""
    every = names or (*known_machines(), *instance_types())
    return MachineList(tuple(_machine(load_machine(name)) for name in every))


def _machine(spec: MachineSpec) -> Machine:
    functions = functions_of(spec)
    groups = {functions[slot.pci].group for slot in spec.slots}
    return Machine(
        name=spec.name,
        description=spec.description,
        product=spec.product.name,
        architecture=spec.product.architecture,
        gpus=len(spec.slots),
        memory_bytes=spec.product.memory_bytes,
        mig=spec.product.mig is not None,
        mig_enabled=tuple(str(slot.pci) for slot in spec.slots if slot.mig_enabled),
        nvlinks=max(len(slot.links) for slot in spec.slots),
        virtualization=spec.product.virtualization,
        numa_nodes=len({slot.numa_node for slot in spec.slots} - {None}),
        iommu_groups=len(groups) if spec.iommu.present else None,
        driver_version=spec.driver_version,
        cuda_driver_version=spec.cuda_driver_version,
    )


def machines_table(listed: MachineList) -> str:
    """A line for each machine."""
    rows = []
    for one in listed.items:
        memory = one.memory_bytes and f"{one.memory_bytes / 2**30:.0f} GiB"
        mig = "on" if one.mig_enabled else "yes" if one.mig else None
        cells = (one.name, one.gpus, one.product, memory, mig, one.nvlinks, one.description)
        rows.append([str(cell or "-") for cell in cells])
    return columns(("name", "gpus", "product", "memory", "mig", "nvlinks", "what-it-is"), rows)
