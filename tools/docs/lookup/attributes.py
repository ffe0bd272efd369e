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
        "the device's name in CUDA; a partition that is made for a claim has one once it is made",
        "nvmlDeviceGetUUID; for `vfio` made from the PCI address",
    ),
    "parentUUID": _Words("the GPU that a partition or a vGPU is on", "nvmlDeviceGetUUID"),
    "parentPCIBusID": _Words("the PCI address of the GPU that a vGPU is on", "nvmlDeviceGetPciInfo_v3"),
    "index": _Words("the number of the GPU; it may move with a reboot", "nvmlDeviceGetIndex"),
    "profile": _Words(
        "the profile of a partition, or the type of a vGPU", "MIG profiles and vGPU types of NVML"
    ),
    "productName": _Words(
        "the model", "nvmlDeviceGetName; for a GPU without the NVIDIA driver its device id in sysfs"
    ),
    "brand": _Words("the brand", "nvmlDeviceGetBrand"),
    "architecture": _Words("the architecture", "nvmlDeviceGetArchitecture"),
    "cudaComputeCapability": _Words("the compute capability", "nvmlDeviceGetCudaComputeCapability"),
    "driverVersion": _Words("the version of the NVIDIA driver", "nvmlSystemGetDriverVersion"),
    "cudaDriverVersion": _Words(
        "the newest CUDA that the NVIDIA driver serves", "nvmlSystemGetCudaDriverVersion_v2"
    ),
    "addressingMode": _Words("`HMM`, `ATS` or `None`", "nvmlDeviceGetAddressingMode"),
}
PLACE = {
    "numaNode": _Words(
        "the NUMA node that the GPU is attached to", "sysfs `numa_node`, else nvmlDeviceGetMemoryAffinity"
    ),
    "resource.kubernetes.io/numaNode": _Words(
        "the same, under the name that all drivers share", "as `numaNode`"
    ),
    "resource.kubernetes.io/pciBusID": _Words(
        "the PCI address; of several GPUs that of the first", "nvmlDeviceGetPciInfo_v3; for `vfio` sysfs"
    ),
    "resource.kubernetes.io/pcieRoot": _Words(
        "the PCIe root, which a network card may have in common", "sysfs, the path of the device"
    ),
    "pcieSwitches": _Words(
        "the ports of PCIe switches above the GPU, from the root down", "sysfs, the path of the device"
    ),
    "cpuAffinity": _Words("the CPUs near the GPU", "sysfs `local_cpulist`"),
    "nvlinkDomain": _Words(
        "the island: GPUs that NVLinks connect, directly or through others", "nvmlDeviceGetNvLinkState"
    ),
    "nvlinkMesh": _Words("the mesh: GPUs that are all linked to each other", "nvmlDeviceGetNvLinkState"),
    "nvlinkPeers": _Words("the indexes of the GPUs that it is linked to", "nvmlDeviceGetNvLinkState"),
    "nvlinkPeerCount": _Words("how many those are", "nvmlDeviceGetNvLinkState"),
    "nvlinkPeerLinks": _Words(
        "how many NVLinks lead to each of them: one number, or one for each", "nvmlDeviceGetNvLinkState"
    ),
    "fabricClique": _Words("the clique of an NVLink fabric of several nodes", "nvmlDeviceGetGpuFabricInfoV"),
    "gpuModuleID": _Words(
        "the place on the baseboard, where NVSwitches are shared out",
        "nvmlDeviceGetModuleId, or the fabric manager",
    ),
    "partition1": _Words("the fabric partition of one GPU that it is", "the fabric manager"),
    "partition2": _Words("the fabric partition of two GPUs that it is in", "the fabric manager"),
    "partition4": _Words("the fabric partition of four GPUs that it is in", "the fabric manager"),
    "partition8": _Words("the fabric partition of eight GPUs that it is in", "the fabric manager"),
}
FORMS = {
    "sharing": _Words("`none`, `time-slicing` or `mps`", _OWN),
    "memoryIsolation": _Words(
        (
            "what keeps its memory from others: `hardware`, `cgroup`, `mps` or `none`; absent if that "
            "cannot be promised"
        ),
        _OWN,
    ),
    "memoryLimits": _Words(
        "`cgroup`: the NVIDIA driver holds shares to their memory", "nvmlDeviceGetMemoryLimits_v1"
    ),
    "memoryLimitsWithheld": _Words("why the NVIDIA driver does not do so, although it is new enough", _OWN),
    "migCapable": _Words("whether it could be partitioned", "nvmlDeviceGetMigMode"),
    "migWithheld": _Words("why it is not, although the node configuration asks for it", _OWN),
}
VIRTUAL = {
    "virtualization": _Words(
        (
            "`vgpu` if the node is a virtual machine with a vGPU, `host-vgpu` if it is the host of such; "
            "otherwise `none`"
        ),
        "nvmlDeviceGetVirtualizationMode",
    ),
    "vgpuProfile": _Words("the type of the vGPU that the node has", "nvmlDeviceGetName"),
    "vgpuKind": _Words("`mig-backed` or `time-sliced`", "the type's name"),
    "vgpuLicenseStatus": _Words("`Licensed` or `Unlicensed`", "nvmlDeviceGetGridLicensableFeatures_v4"),
    "vgpuLicenseProduct": _Words(
        "the product that the license is for", "nvmlDeviceGetGridLicensableFeatures_v4"
    ),
    "vgpuFramework": _Words("how a host makes the vGPU: `mdev` or `vendor-vfio`", "sysfs"),
    "vgpuSeries": _Words(
        "the letter in the type's name that says what it is licensed for: `C`, `Q`, `B`, `A`",
        "the type's name",
    ),
    "frameRateLimit": _Words(
        "the most frames a second; absent without a limit", "nvmlDeviceGetSupportedVgpus"
    ),
    "vendorID": _Words("the PCI vendor", "sysfs `vendor`"),
    "deviceID": _Words("the PCI device id", "sysfs `device`"),
    "iommuGroup": _Words("the number of the IOMMU group; it may change with a reboot", "sysfs `iommu_group`"),
    "iommuFDEnabled": _Words("whether the kernel offers /dev/iommu", "/dev/iommu"),
    "gpuCount": _Words("how many GPUs the device has", "sysfs, the IOMMU group"),
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
        "GPU memory, bytes", "nvmlDeviceGetMemoryInfo, or the profile of the partition or the vGPU"
    ),
    "shares": _Words("of a shared device: how many shares it has, a number", "the node configuration"),
    "multiprocessors": _Words("streaming multiprocessors, a number", _MIG_PROFILE),
    "copyEngines": _Words("copy engines, a number", _MIG_PROFILE),
    "decoders": _Words("video decoders, a number", _MIG_PROFILE),
    "encoders": _Words("video encoders, a number", _MIG_PROFILE),
    "jpegEngines": _Words("JPEG engines, a number", _MIG_PROFILE),
    "ofaEngines": _Words("optical flow accelerators, a number", _MIG_PROFILE),
    "memorySlice0": _Words(
        "and further numbers: 1 for each slice of the GPU's memory that the partition lies on",
        "the place of the partition",
    ),
    "addressableMemory": _Words(
        "the window of addresses that the memory regions of a passed GPU need, bytes", "sysfs `resource`"
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
    return table((what, "type", "of devices", "means", "source", "example"), rows)


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
