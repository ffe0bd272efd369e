"""Turns what NVML and sysfs answered on a node into a machine file, from which a fake machine is made.

A machine file describes hardware. What it cannot say is not in it: the use, the health and the temperature of
GPUs, their modes besides MIG, MIG instances and vGPUs that exist, which GPUs read each other's memory, the
names of other vfio drivers, GPUs that the NVIDIA driver does not hold, and GPUs of a second model.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from driver.errors import ConfigError
from driver.fabric.api import FabricPartition
from driver.hardware import pci as sysfs
from driver.hardware.functions import PciFunction
from driver.hardware.pci_view import function_folder, iommu_group_of, read_function
from driver.hardware.vgpu_places import read_vgpu_host
from driver.nvml.mig import GpuInstanceProfile, Placement
from driver.nvml.pci_address import PciAddress
from driver.nvml.vgpu import VgpuType
from fakegpu.machine import mig_profiles, vgpu_types
from fakegpu.machine.fields import Fields
from fakegpu.machine.spec import read_machine

_MIB = 2**20
_BESIDE = {0x0403: "audio", 0x0C03: "usb", 0x0C80: "ucsi"}
"""Base class and subclass of the other functions of a board, as machine files name them."""
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}\Z", re.ASCII)
_FRAMEWORKS = {"vendor-vfio": "vfio", "mdev": "mdev"}
_LINE_CHARACTERS = 300
_MAPPING, _NUMBER = "tag:yaml.org,2002:map", "tag:yaml.org,2002:int"

Document = dict[str, Any]


class _InOneLine(dict[str, Any]):
    """A mapping that is written in one line."""


class _Hexadecimal(int):
    """A number that is written as lspci prints it."""


class _Dumper(yaml.SafeDumper):
    """Writes machine files as people write them."""


_Dumper.add_representer(
    _InOneLine, lambda dumper, one: dumper.represent_mapping(_MAPPING, one, flow_style=True)
)
_Dumper.add_representer(_Hexadecimal, lambda dumper, one: dumper.represent_scalar(_NUMBER, f"0x{one:04x}"))


@dataclass(frozen=True, slots=True)
class NvmlAnswers:
    """What NVML answered about one GPU; calls that failed are missing.

    ``placements`` are those of MIG profiles, by profile id.
    """

    answers: Mapping[str, Any]
    placements: Mapping[int, tuple[Placement, ...]] = field(default_factory=dict)

    def get(self, method: str) -> Any:
        """The answer of a method of driver.nvml.api, None without one."""
        return self.answers.get(method)

    @property
    def pci(self) -> PciAddress:
        """Where the GPU is."""
        return PciAddress.parse(self.answers["pci"])


@dataclass(frozen=True, slots=True)
class _Seen:
    """A GPU with what sysfs shows of it."""

    nvml: NvmlAnswers
    function: PciFunction
    pcie_root: str


@dataclass(frozen=True, slots=True)
class MachineFile:
    """The content of a machine file, and what it leaves out of this node, a sentence for each thing."""

    document: Document
    left_out: tuple[str, ...] = ()

    def text(self) -> str:
        """The file."""
        return yaml.dump(
            self.document, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=_LINE_CHARACTERS
        )


def machine_file(
    versions: Mapping[str, str],
    gpus: Sequence[NvmlAnswers],
    sysfs_root: Path,
    partitions: Sequence[FabricPartition],
) -> MachineFile:
    """The machine file of a node; ``versions`` has ``driver_version`` and ``cuda_driver_version``.

    ``partitions`` are those of the fabric manager, none without a shared fabric.
    Raises ConfigError if a field is unknown without which there is no machine.
    """
    left_out: list[str] = []
    seen = _described(gpus, sysfs_root, left_out)
    if not seen or not versions.keys() >= {"driver_version", "cuda_driver_version"}:
        raise ConfigError(
            "; ".join(left_out) or "NVML answered neither with its versions nor with a GPU",
            "look at nvml.json beside it for the calls that failed",
        )
    name = seen[0].nvml.get("name")
    document: Document = {
        "description": f"Recorded on a node: {len(seen)} x {name}",
        "driver_version": versions["driver_version"],
        "cuda_driver_version": versions["cuda_driver_version"],
        "product": _product(seen, sysfs_root, left_out),
        "gpus": [_gpu(one, sysfs_root) for one in seen],
    }
    if "mig" not in document["product"]:
        for one in document["gpus"]:
            one.pop("mig_enabled", None)
    for key, value in (
        ("nvlink", _nvlink(seen, left_out)),
        ("fabric", _fabric(seen, left_out)),
        ("fabric_manager", _fabric_manager(seen, partitions, left_out)),
    ):
        if value:
            document[key] = value
    if all(one.function.iommu_group is None for one in seen):
        document["iommu"] = {"present": False}
    fields = Fields(document)
    read_machine("recorded", fields)
    left_out.extend(f"it cannot be used before this is changed: {error}" for error in fields.errors)
    return MachineFile(document, tuple(left_out))


def _described(gpus: Sequence[NvmlAnswers], sysfs_root: Path, left_out: list[str]) -> list[_Seen]:
    """The GPUs of the most frequent model that have all that a machine file requires, by address."""
    found = []
    for number, gpu in enumerate(gpus):
        lacking = [
            method
            for method in ("pci", "uuid", "minor", "name", "compute_capability")
            if gpu.get(method) is None
        ]
        if lacking:
            left_out.append(f"GPU {number}: NVML did not answer {', '.join(lacking)}")
            continue
        function, root = read_function(sysfs_root, gpu.pci), _root(sysfs_root, gpu.pci)
        if function is None or root is None:
            left_out.append(f"GPU {gpu.pci}: {sysfs_root} does not show it, or not its PCIe root")
            continue
        if sysfs.pcie_root(sysfs_root, gpu.pci) is None:
            left_out.append(f"GPU {gpu.pci}: that its PCIe root {root} is part of another bus")
        found.append(_Seen(gpu, function, root))
    if not found:
        return []
    ((name, _),) = Counter(one.nvml.get("name") for one in found).most_common(1)
    left_out.extend(
        f"GPU {one.nvml.pci}: it is a {one.nvml.get('name')}, and a machine has one model"
        for one in found
        if one.nvml.get("name") != name
    )
    chosen = [one for one in found if one.nvml.get("name") == name]
    return sorted(chosen, key=lambda one: one.nvml.pci)


def _root(sysfs_root: Path, pci: PciAddress) -> str | None:
    """The host bridge above the GPU; None if sysfs shows none.

    On Hyper-V it is part of a virtual bus, and then the driver publishes no root.
    """
    try:
        parts = function_folder(sysfs_root, pci).readlink().parts
    except OSError:
        return None
    return next((part for part in reversed(parts) if _HOST_BRIDGE.match(part)), None)


def _product(seen: Sequence[_Seen], sysfs_root: Path, left_out: list[str]) -> Document:
    """What all GPUs have in common: the values of the first one."""
    first = seen[0].nvml
    for other in seen[1:]:
        left_out.extend(
            f"GPU {other.nvml.pci}: its {method} is {other.nvml.get(method)}, as a machine has one for all"
            for method in ("brand", "architecture", "compute_capability", "memory_bytes", "addressing_mode")
            if other.nvml.get(method) != first.get(method)
        )
    memory_bytes, use = first.get("memory_bytes"), first.get("memory_use")
    licensed = next((one for one in first.get("licensable_features") or () if one.enabled), None)
    major, minor = first.get("compute_capability")
    found: Document = {
        "name": first.get("name"),
        "device_id": _Hexadecimal(seen[0].function.device_id),
        "brand": first.get("brand"),
        "architecture": first.get("architecture"),
        "compute_capability": f"{major}.{minor}",
        "memory_mib": memory_bytes // _MIB if memory_bytes else None,
        "reserved_mib": use.reserved_bytes // _MIB if use is not None and memory_bytes else None,
        "addressing_mode": first.get("addressing_mode"),
        "mig": _mig(seen, left_out),
        "virtualization": first.get("virtualization"),
        "license": licensed.product if licensed else None,
        "licensed": False if licensed and not licensed.licensed else None,
        "sriov": _sriov(seen[0], sysfs_root),
        "vgpu": _vgpu(seen, sysfs_root),
    }
    if found["virtualization"] == "host-vgpu" and found["vgpu"] is None:
        left_out.append("the vGPUs of this host: NVML lists no types, or the kernel shows no framework yet")
        found["virtualization"] = None
    return {key: value for key, value in found.items() if value is not None}


def _gpu(one: _Seen, sysfs_root: Path) -> Document:
    gpu, pci = one.nvml, one.nvml.pci
    group, mode = iommu_group_of(sysfs_root, pci), gpu.get("mig_mode")
    # The driver reads the node in this order, too.
    node = one.function.numa_node
    # A port that leads to another switch and the upper port of that switch take turns.
    switches = [f"{pci.domain:04x}:{port}" for port in sysfs.pcie_switches(sysfs_root, pci)[::2]]
    found: Document = {
        "pci": str(pci),
        "minor": gpu.get("minor"),
        "uuid": gpu.get("uuid"),
        "numa_node": gpu.get("numa_node") if node is None else node,
        "cpus": sysfs.local_cpus(sysfs_root, pci),
        "pcie_root": one.pcie_root,
        "switches": switches or None,
        "mig_enabled": True if mode is not None and mode.enabled else None,
        "module": gpu.get("module_id"),
        "beside": _beside(sysfs_root, pci) or None,
        "iommu_group": one.function.iommu_group,
        "bridge_in_group": True if group and _bridge(sysfs_root, pci) in group.functions else None,
        "virtual_functions": len(one.function.virtual) or None,
    }
    return _InOneLine({key: value for key, value in found.items() if value is not None})


def _bridge(sysfs_root: Path, pci: PciAddress) -> PciFunction | None:
    """The port that leads to the GPU; None below a root complex without one, as in virtual machines."""
    try:
        # sysfs nests a function's folder in that of the port above it.
        above = PciAddress.parse(function_folder(sysfs_root, pci).readlink().parent.name)
    except (OSError, ValueError):
        return None
    return read_function(sysfs_root, above)


def _beside(sysfs_root: Path, pci: PciAddress) -> list[str]:
    """The other functions of the board, from .1 on without a gap."""
    found: list[str] = []
    while len(found) < 7:
        at = PciAddress(pci.domain, pci.bus, pci.device, len(found) + 1)
        function = read_function(sysfs_root, at)
        kind = None if function is None else _BESIDE.get(function.class_code >> 8)
        if kind is None:
            break
        found.append(kind)
    return found


def _sriov(one: _Seen, sysfs_root: Path) -> Document | None:
    """The virtual functions that the GPU can have; None if sysfs does not show their device id."""
    if not one.function.total_virtual:
        return None
    text = sysfs.read_text(function_folder(sysfs_root, one.nvml.pci) / "sriov_vf_device")
    virtual = [read_function(sysfs_root, pci) for pci in one.function.virtual[:1]]
    try:
        # The kernel prints it in hexadecimal, without 0x.
        device_id = int(text or "", 16)
    except ValueError:
        device_id = virtual[0].device_id if virtual and virtual[0] else 0
    if not device_id:
        return None
    return {"total": one.function.total_virtual, "device_id": _Hexadecimal(device_id)}


def _vgpu(seen: Sequence[_Seen], sysfs_root: Path) -> Document | None:
    """The vGPUs that a host can make, None on any other machine."""
    if seen[0].nvml.get("virtualization") != "host-vgpu":
        return None
    # In MIG mode NVML lists other types than outside of it.
    types: dict[int, VgpuType] = {kind.id: kind for one in seen for kind in one.nvml.get("vgpu_types") or ()}
    frameworks = [read_vgpu_host(sysfs_root, one.nvml.pci, None).framework for one in seen]
    framework = next((one for one in frameworks if one is not None), None)
    if not types or framework is None or (framework == "vendor-vfio" and _sriov(seen[0], sysfs_root) is None):
        return None
    found = tuple(types[number] for number in sorted(types))
    names = (name for name in vgpu_types.known_catalogues() if vgpu_types.load_types(name) == found)
    listed = next(names, None) or [_vgpu_type(one) for one in found]
    return {"framework": _FRAMEWORKS[framework], "types": listed}


def _vgpu_type(one: VgpuType) -> Document:
    found = {
        "id": one.id,
        "name": one.name,
        "class": one.class_name,
        "memory_mib": one.memory_bytes // _MIB,
        "most": one.most,
        "gpu_instance_profile": one.gpu_instance_profile,
        "frames_per_second": one.frames_per_second,
    }
    return _InOneLine({key: value for key, value in found.items() if value is not None})


def _mig(seen: Sequence[_Seen], left_out: list[str]) -> str | Document | None:
    """The MIG profiles: the name of a table that has exactly these, or the table itself."""
    if all(one.nvml.get("mig_mode") is None for one in seen):
        return None
    for one in seen:
        profiles: tuple[GpuInstanceProfile, ...] = one.nvml.get("gpu_instance_profiles") or ()
        placements = {id_: places for id_, places in one.nvml.placements.items() if places}
        known = tuple(profile for profile in profiles if profile.id in placements)
        if known:
            left_out.extend(
                f"MIG profile {profile.name}: NVML did not answer with its placements"
                for profile in profiles
                if profile not in known
            )
            return _named_table(known, placements) or _table(known, placements)
    left_out.append("MIG: NVML did not answer with its profiles and their placements")
    return None


def _named_table(
    profiles: tuple[GpuInstanceProfile, ...], placements: Mapping[int, tuple[Placement, ...]]
) -> str | None:
    for name in mig_profiles.known_catalogues():
        table = mig_profiles.load_catalogue(name)
        if table.profiles == profiles and table.placements == placements:
            return name
    return None


def _table(
    profiles: Sequence[GpuInstanceProfile], placements: Mapping[int, tuple[Placement, ...]]
) -> Document:
    every = [place for profile in profiles for place in placements[profile.id]]
    return {
        "memory_slices": max(place.start + place.size for place in every),
        "profiles": [_mig_profile(one, placements[one.id]) for one in profiles],
    }


def _mig_profile(one: GpuInstanceProfile, places: tuple[Placement, ...]) -> Document:
    engines = one.engines
    return _InOneLine(
        name=one.name,
        index=one.index,
        id=one.id,
        slices=one.slices,
        most=one.most_instances,
        memory_mib=one.memory_bytes // _MIB,
        multiprocessors=one.multiprocessors,
        engines=[engines.copy, engines.decoders, engines.encoders, engines.jpeg, engines.ofa],
        starts=[place.start for place in places],
        size=places[0].size,
    )


def _nvlink(seen: Sequence[_Seen], left_out: list[str]) -> Document | None:
    links = {one.nvml.pci: one.nvml.get("nvlinks") or () for one in seen}
    switched = {pci: sum(end.kind == "switch" for end in ends) for pci, ends in links.items()}
    direct = {pci: Counter(end.remote for end in ends if end.kind == "gpu") for pci, ends in links.items()}
    in_mig = {one.nvml.pci for one in seen if (mode := one.nvml.get("mig_mode")) and mode.enabled}
    most = max(switched.values())
    # On some boards the links of a GPU in MIG mode are down.
    ends_with_mig = any(not links[pci] for pci in in_mig) and any(links.values())
    left_out.extend(
        f"GPU {pci}: it has {count} NVLinks into switches, as another one has {most}"
        for pci, count in switched.items()
        if count != most and not (ends_with_mig and pci in in_mig)
    )
    addresses = list(links)
    pairs = [
        [one, other, count]
        for one, first in enumerate(addresses)
        for other, second in enumerate(addresses)
        if one < other and (count := max(direct[first][second], direct[second][first]))
    ]
    for pci, ends in links.items():
        elsewhere = [end for end in ends if end.kind != "switch" and end.remote not in links]
        if elsewhere:
            left_out.append(f"GPU {pci}: where {len(elsewhere)} of its NVLinks lead")
    found = {
        "switch_links": most or None,
        "pairs": pairs or None,
        "ends_with_mig": True if ends_with_mig else None,
    }
    return {key: value for key, value in found.items() if value is not None} or None


def _fabric(seen: Sequence[_Seen], left_out: list[str]) -> Document | None:
    known = {one.nvml.pci: info for one in seen if (info := one.nvml.get("fabric")) is not None}
    if not known:
        return None
    first = next(iter(known.values()))
    left_out.extend(
        f"GPU {pci}: its place in the NVLink fabric differs from that of the first GPU"
        for pci, info in known.items()
        if info != first
    )
    return {"state": first.state, "cluster_uuid": first.cluster_uuid, "clique": first.clique}


def _fabric_manager(
    seen: Sequence[_Seen], partitions: Sequence[FabricPartition], left_out: list[str]
) -> Document | None:
    if not partitions:
        return None
    modules = {one.nvml.get("module_id") for one in seen}
    by_number = sorted(partitions, key=lambda one: one.number)
    # Before Hopper the fabric manager numbers GPUs in another way than NVML.
    if not all(one.physical_ids <= modules for one in by_number):
        left_out.append("the fabric partitions: their GPUs are not known by NVML's module ids")
        return None
    if not any(one.nvml.get("nvlinks") for one in seen):
        left_out.append("the NVLinks, which are down while no fabric partition is active")
    if [one.number for one in by_number] != list(range(len(by_number))):
        left_out.append("the numbers of the fabric partitions, which do not count from 0")
    identities = any(gpu.uuid is not None for one in by_number for gpu in one.gpus)
    return {
        "shared": True,
        **({"tells_identities": True} if identities else {}),
        "partitions": [sorted(one.physical_ids) for one in by_number],
    }
