"""The tables of the attributes and capacities of devices.

Types, kinds of devices and examples are read from the slices of fake nodes; meanings and sources are written
here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from driver.policy.config import parse_config
from tools.conformance.nodes.mig_nodes import State, offers, slices
from tools.docs.lookup.marked import code, table

KINDS = ("gpu", "mig", "shared", "vfio", "vgpu")
"""The values of the attribute ``type``, in the order of the page."""

_SHARED = "shared: [{strategy: TimeSlicing, shares: 4}, {strategy: MPS, shares: 4}]"
_ALL_KINDS = f"offer: whole, mig: dynamic, passthrough: true, {_SHARED}"
_NODES: tuple[tuple[str, str, State], ...] = (
    ("hgx-h100", _ALL_KINDS, "delivered"),
    ("hgx-h100", "", "cut"),
    ("hgx-h100", f"mig: {{layout: all-balanced}}, {_SHARED}", "delivered"),
    ("hgx-h100", "shared: {strategy: MPS, memory: {step: 10Gi}, fractional: true}", "delivered"),
    ("hgx-h100", "shared: {strategy: TimeSlicing, shares: 10, fractional: true}", "delivered"),
    ("dgx-a100", "", "delivered"),
    ("dgx1-v100", _ALL_KINDS, "delivered"),
    ("gb200-tray", "mig: dynamic", "delivered"),
    ("hgx-h100-shared-nvswitch", _ALL_KINDS, "delivered"),
    ("l4-quad", f"offer: whole, {_SHARED}", "delivered"),
    ("l4-quad", f"offer: whole, memoryLimits: false, {_SHARED}", "delivered"),
    ("a30-passthrough-guest", "mig: dynamic", "delivered"),
    ("a100-vgpu-guest", f"offer: whole, {_SHARED}", "delivered"),
    ("vgpu-host-l40s", "vgpu: {profiles: [L40S-8Q]}", "delivered"),
    ("vgpu-host-a100-mdev", "vgpu: {profiles: [A100-10C]}", "delivered"),
    ("vgpu-and-passthrough", "passthrough: true", "delivered"),
)
"""Machine, rule of the node configuration, state of the GPUs: together these publish every attribute.

The example of an attribute is from the first machine that publishes it.
"""


@dataclass(frozen=True, slots=True)
class _Words:
    """The meaning of an attribute or a capacity, and its source: a call of NVML, sysfs, or the driver."""

    meaning: str
    source: str


_OWN = "this driver"

IDENTITY = {
    "type": _Words("the kind of device: `gpu`, `mig`, `shared`, `vfio` or `vgpu`", _OWN),
    "uuid": _Words(
        "the UUID that CUDA uses; a partition that is created for a claim has none before that",
        "nvmlDeviceGetUUID; for `vfio` made from the PCI address",
    ),
    "parentUUID": _Words("the GPU that a partition or a vGPU is on", "nvmlDeviceGetUUID"),
    "parentPCIBusID": _Words("the PCI address of the GPU that a vGPU is on", "nvmlDeviceGetPciInfo_v3"),
    "index": _Words("the index of the GPU; it may change with a reboot", "nvmlDeviceGetIndex"),
    "profile": _Words(
        "the profile of a partition, or the type of a vGPU", "MIG profiles and vGPU types of NVML"
    ),
    "productName": _Words(
        "the model", "nvmlDeviceGetName; without the NVIDIA driver, the device id in sysfs"
    ),
    "brand": _Words("the brand", "nvmlDeviceGetBrand"),
    "architecture": _Words("the architecture", "nvmlDeviceGetArchitecture"),
    "cudaComputeCapability": _Words("the compute capability", "nvmlDeviceGetCudaComputeCapability"),
    "driverVersion": _Words("the version of the NVIDIA driver", "nvmlSystemGetDriverVersion"),
    "cudaDriverVersion": _Words(
        "the newest CUDA version that the NVIDIA driver supports", "nvmlSystemGetCudaDriverVersion_v2"
    ),
    "addressingMode": _Words("`HMM`, `ATS` or `None`", "nvmlDeviceGetAddressingMode"),
}
PLACE = {
    "numaNode": _Words(
        "the NUMA node that the GPU is attached to", "sysfs `numa_node`, else nvmlDeviceGetMemoryAffinity"
    ),
    "resource.kubernetes.io/numaNode": _Words(
        "the same, under a name that other drivers use too", "as `numaNode`"
    ),
    "resource.kubernetes.io/pciBusID": _Words(
        "the PCI address; for several GPUs, that of the first", "nvmlDeviceGetPciInfo_v3; for `vfio` sysfs"
    ),
    "resource.kubernetes.io/pcieRoot": _Words(
        "the PCIe root; match it to get a GPU and a network card together", "sysfs, the path of the device"
    ),
    "pcieSwitches": _Words(
        (
            "the ports of the PCIe switches above the GPU, from the root down; match it to get GPUs behind "
            "one switch"
        ),
        "sysfs, the path of the device",
    ),
    "cpuAffinity": _Words("the CPUs that are local to the GPU", "sysfs `local_cpulist`"),
    "nvlinkDomain": _Words(
        "the same for all GPUs that NVLinks connect, directly or through other GPUs",
        "nvmlDeviceGetNvLinkState",
    ),
    "nvlinkMesh": _Words("the same for GPUs that all have links to each other", "nvmlDeviceGetNvLinkState"),
    "nvlinkPeers": _Words("the indexes of the GPUs that it has links to", "nvmlDeviceGetNvLinkState"),
    "nvlinkPeerCount": _Words("the number of these GPUs", "nvmlDeviceGetNvLinkState"),
    "nvlinkPeerLinks": _Words(
        "the number of NVLinks to each of them: one number for all, or one for each",
        "nvmlDeviceGetNvLinkState",
    ),
    "fabricClique": _Words("the clique of an NVLink fabric of several nodes", "nvmlDeviceGetGpuFabricInfoV"),
    "gpuModuleID": _Words(
        "the position on the board; only with fabric partitions",
        "nvmlDeviceGetModuleId, or the fabric manager",
    ),
    "partition1": _Words("the number of its fabric partition of one GPU", "the fabric manager"),
    "partition2": _Words("the number of its fabric partition of two GPUs", "the fabric manager"),
    "partition4": _Words("the number of its fabric partition of four GPUs", "the fabric manager"),
    "partition8": _Words("the number of its fabric partition of eight GPUs", "the fabric manager"),
}
FORMS = {
    "sharing": _Words("`none`, `time-slicing` or `mps`", _OWN),
    "memoryIsolation": _Words(
        (
            "what protects its memory from other pods: `hardware`, `cgroup`, `mps` or `none`; absent if "
            "nothing can be promised"
        ),
        _OWN,
    ),
    "memoryLimits": _Words(
        "`cgroup`: the NVIDIA driver enforces the memory limits of shares", "nvmlDeviceGetMemoryLimits_v1"
    ),
    "memoryLimitsWithheld": _Words(
        "why the NVIDIA driver does not enforce them, although it is new enough", _OWN
    ),
    "migCapable": _Words("whether MIG can divide the GPU", "nvmlDeviceGetMigMode"),
    "migWithheld": _Words("why it is not divided, although the node configuration asks for partitions", _OWN),
}
VIRTUAL = {
    "virtualization": _Words(
        "`vgpu` in a virtual machine with a vGPU, `host-vgpu` on a host that lends vGPUs, otherwise `none`",
        "nvmlDeviceGetVirtualizationMode",
    ),
    "vgpuProfile": _Words("the type of the vGPU that the node has", "nvmlDeviceGetName"),
    "vgpuKind": _Words("`mig-backed` or `time-sliced`", "the type's name"),
    "vgpuLicenseStatus": _Words("`Licensed` or `Unlicensed`", "nvmlDeviceGetGridLicensableFeatures_v4"),
    "vgpuLicenseProduct": _Words("the licensed product", "nvmlDeviceGetGridLicensableFeatures_v4"),
    "vgpuFramework": _Words("how the host creates the vGPU: `mdev` or `vendor-vfio`", "sysfs"),
    "vgpuSeries": _Words(
        "the letter of the license in the type's name: `C`, `Q`, `B` or `A`",
        "the type's name",
    ),
    "frameRateLimit": _Words(
        "the maximum of frames per second; absent without a limit", "nvmlDeviceGetSupportedVgpus"
    ),
    "vendorID": _Words("the PCI vendor", "sysfs `vendor`"),
    "deviceID": _Words("the PCI device id", "sysfs `device`"),
    "iommuGroup": _Words("the number of the IOMMU group; it may change with a reboot", "sysfs `iommu_group`"),
    "iommuFDEnabled": _Words("whether the kernel offers /dev/iommu", "/dev/iommu"),
    "gpuCount": _Words("the number of GPUs in the device", "sysfs, the IOMMU group"),
    "virtualFunction": _Words("whether it is a virtual function", "sysfs `physfn`"),
}
GROUPS = {
    "What it is": IDENTITY,
    "Where it is": PLACE,
    "How it is offered": FORMS,
    "Virtual machines": VIRTUAL,
}
"""All attributes, in the groups of the page."""

_MIG_PROFILE = "nvmlDeviceGetGpuInstanceProfileInfo"

CAPACITIES = {
    "memory": _Words(
        "GPU memory in bytes", "nvmlDeviceGetMemoryInfo, or the profile of the partition or the vGPU"
    ),
    "shares": _Words("the number of shares of a shared device", "the node configuration"),
    "multiprocessors": _Words("streaming multiprocessors", _MIG_PROFILE),
    "copyEngines": _Words("copy engines", _MIG_PROFILE),
    "decoders": _Words("video decoders", _MIG_PROFILE),
    "encoders": _Words("video encoders", _MIG_PROFILE),
    "jpegEngines": _Words("JPEG engines", _MIG_PROFILE),
    "ofaEngines": _Words("optical flow accelerators", _MIG_PROFILE),
    "memorySlice0": _Words(
        "1 for each slice of the GPU's memory that the partition uses; one capacity for each slice",
        "the place of the partition",
    ),
    "addressableMemory": _Words(
        "the address space that the memory regions of the GPU need, in bytes", "sysfs `resource`"
    ),
}
"""All capacities."""


@dataclass(slots=True)
class Seen:
    """An attribute or a capacity as nodes publish it: an example, its types, and the kinds of its devices."""

    example: str
    types: set[str] = field(default_factory=set)
    kinds: set[str] = field(default_factory=set)


@cache
def seen() -> tuple[Mapping[str, Seen], Mapping[str, Seen]]:
    """The attributes and the capacities that the nodes publish."""
    attributes: dict[str, Seen] = {}
    capacities: dict[str, Seen] = {}
    for machine, rule, state in _NODES:
        for device in _devices(machine, rule, state):
            add(device, attributes, capacities)
    return attributes, capacities


def add(device: Mapping[str, Any], attributes: dict[str, Seen], capacities: dict[str, Seen]) -> None:
    """Add the attributes and capacities of one device of a ResourceSlice."""
    kind = device["attributes"]["type"]["string"]
    for name, typed in device["attributes"].items():
        ((word, value),) = typed.items()
        one = attributes.setdefault(name, Seen(str(value).lower() if word == "bool" else str(value)))
        one.types.add(word)
        one.kinds.add(kind)
    for name, amount in device.get("capacity", {}).items():
        one = capacities.setdefault(_first_slice(name), Seen(str(amount["value"])))
        one.types.add("quantity")
        one.kinds.add(kind)


def attribute_tables() -> str:
    """A table of attributes for each group."""
    found, _ = seen()
    known = {name for group in GROUPS.values() for name in group}
    _match("attributes", known, set(found))
    return "\n".join(f"## {title}\n{_table('attribute', group, found)}" for title, group in GROUPS.items())


def capacity_table() -> str:
    """The table of capacities."""
    _, found = seen()
    _match("capacities", set(CAPACITIES), set(found))
    return _table("capacity", CAPACITIES, found)


def _table(what: str, words: Mapping[str, _Words], found: Mapping[str, Seen]) -> str:
    rows = [
        (
            code(name),
            ", ".join(sorted(found[name].types)),
            ", ".join(code(kind) for kind in KINDS if kind in found[name].kinds),
            one.meaning,
            one.source,
            code(found[name].example),
        )
        for name, one in words.items()
    ]
    return table((what, "type", "devices", "meaning", "source", "example"), rows)


def _match(what: str, known: set[str], published: set[str]) -> None:
    """Raise ValueError if the described names are not those that nodes publish."""
    if known != published:
        raise ValueError(
            f"{what} without words in attributes.py: {sorted(published - known)};"
            f" words without a node in attributes.py that publishes them: {sorted(known - published)}"
        )


def _first_slice(name: str) -> str:
    """The name in the table, which has one line for all memory slices of a partition."""
    return "memorySlice0" if name.startswith("memorySlice") else name


def _devices(machine: str, rule: str, state: State) -> Iterator[Mapping[str, Any]]:
    config = parse_config(f"{{version: v1, rules: [{{{rule}}}]}}", machine) if rule else None
    for one in slices(offers(machine, config, state)):
        yield from one["spec"].get("devices", ())
