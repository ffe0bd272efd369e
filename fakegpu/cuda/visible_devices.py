"""Which devices of a fake machine a CUDA process sees, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from driver.nvml.mig import partition_name
from fakegpu.machine.capabilities import partition_nodes
from fakegpu.machine.mig_state import mig_devices
from fakegpu.machine.spec import MachineSpec
from fakegpu.machine.state import MachineState
from fakegpu.memory.cuda import Place


@dataclass(frozen=True, slots=True)
class MachineDevice:
    """A device of a machine, and the device nodes that a process needs to see it.

    ``uuid`` is None for a GPU in MIG mode: it is no device, but has a number among the GPUs.
    """

    uuid: str | None
    name: str
    place: Place
    nodes: tuple[str, ...]


def machine_devices(spec: MachineSpec, state: MachineState) -> Iterator[MachineDevice]:
    """All devices in CUDA's order; the MIG devices of a GPU follow the GPU."""
    product = spec.product
    for pci in state.listed():
        gpu = state.gpus[pci]
        if gpu.lost:
            continue
        uuid, node = spec.board_uuid(pci, gpu.board), f"/dev/nvidia{gpu.minor}"
        yield MachineDevice(None if gpu.mig.enabled else uuid, product.name, Place(pci), (node,))
        if not gpu.mig.enabled or product.mig is None:
            continue
        for one in mig_devices(product.mig, gpu.mig, uuid):
            gi, ci = one.gpu_instance_id, one.compute_instance_id
            instance = gpu.mig.instance(gi)
            if instance is None:
                continue
            profile = partition_name(product.mig.profile(instance.profile_id), one.compute_instance_slices)
            nodes = (node, *partition_nodes(gpu.minor, gi, ci))
            yield MachineDevice(one.uuid, f"{product.name} MIG {profile}", Place(pci, gi, ci), nodes)


@dataclass(frozen=True, slots=True)
class SeenDevice:
    """A device as CUDA shows it; ``gpu_index`` is the number of its GPU among those that are seen."""

    uuid: str
    name: str
    place: Place
    gpu_index: int

    @property
    def is_mig(self) -> bool:
        """Whether it is a MIG device."""
        return self.place.gpu_instance is not None


def visible_devices(
    spec: MachineSpec,
    state: MachineState,
    environment: Mapping[str, str],
    nodes: frozenset[str] | None,
    served: frozenset[str] | None = None,
) -> tuple[SeenDevice, ...]:
    """The devices in the order of their ordinals; ``nodes`` are the device nodes, None for all.

    The client of an MPS server sees the ``served`` devices only, whatever else has its nodes (MPS
    documentation, CUDA_VISIBLE_DEVICES). A process sees one MIG device at most, and no whole GPU beside it
    (MIG user guide, device enumeration).
    """
    seen = tuple(one for one in _with_nodes(spec, state, nodes) if served is None or one.uuid in served)
    chosen = _chosen(seen, environment.get("CUDA_VISIBLE_DEVICES"))
    partitions = [one for one in chosen if one.is_mig]
    return tuple(partitions[:1] or chosen)


def _with_nodes(spec: MachineSpec, state: MachineState, nodes: frozenset[str] | None) -> Iterator[SeenDevice]:
    """All devices whose device nodes are there."""
    index, last = -1, None
    for one in machine_devices(spec, state):
        if nodes is not None and not nodes.issuperset(one.nodes):
            continue
        index += one.place.pci != last
        last = one.place.pci
        if one.uuid is not None:
            yield SeenDevice(one.uuid, one.name, one.place, index)


def _chosen(seen: tuple[SeenDevice, ...], text: str | None) -> tuple[SeenDevice, ...]:
    """The devices that CUDA_VISIBLE_DEVICES names by index or UUID, of which the beginning does."""
    if text is None:
        return seen
    chosen: list[SeenDevice] = []
    for name in text.split(","):
        found = [one for one in seen if _is_named(one, name.strip())]
        # As in CUDA, the first unknown name ends the list, and the same device twice makes it invalid.
        if not found or found[0] in chosen:
            break
        chosen.append(found[0])
    return tuple(chosen)


def _is_named(one: SeenDevice, name: str) -> bool:
    if name.isdecimal():
        return one.gpu_index == int(name)
    return name.startswith(("GPU-", "MIG-")) and one.uuid.startswith(name)
