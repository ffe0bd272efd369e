"""What each attribute and capacity of a device means, and where it comes from.

Types, kinds of devices and examples are no part of it: they are read from what pretended nodes publish.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Words:
    """The meaning of an attribute or a capacity, and its source: calls of NVML, sysfs, or the driver."""

    meaning: str
    source: str


_OWN = "this driver"

IDENTITY = {
    "type": Words("the kind of device: `gpu`, `mig`, `shared`, `vfio` or `vgpu`", _OWN),
    "uuid": Words(
        "what CUDA knows the device by; a partition that is made for a claim has one once it is made",
        "nvmlDeviceGetUUID; of `vfio` made from the PCI address",
    ),
    "parentUUID": Words("the GPU that a partition or a vGPU lies on", "nvmlDeviceGetUUID"),
    "parentPCIBusID": Words("the PCI address of the GPU that a vGPU lies on", "nvmlDeviceGetPciInfo_v3"),
    "index": Words("the number of the GPU; it may move with a reboot", "nvmlDeviceGetIndex"),
    "profile": Words(
        "the profile of a partition, or the type of a vGPU", "MIG profiles and vGPU types of NVML"
    ),
    "productName": Words(
        "the model", "nvmlDeviceGetName; of a GPU without the NVIDIA driver its device id in sysfs"
    ),
    "brand": Words("the brand", "nvmlDeviceGetBrand"),
    "architecture": Words("the architecture", "nvmlDeviceGetArchitecture"),
    "cudaComputeCapability": Words("the compute capability", "nvmlDeviceGetCudaComputeCapability"),
    "driverVersion": Words("the version of the NVIDIA driver", "nvmlSystemGetDriverVersion"),
    "cudaDriverVersion": Words(
        "the newest CUDA that the NVIDIA driver serves", "nvmlSystemGetCudaDriverVersion_v2"
    ),
    "addressingMode": Words("`HMM`, `ATS` or `None`", "nvmlDeviceGetAddressingMode"),
}
PLACE = {
    "numaNode": Words(
        "the NUMA node that the GPU is attached to", "sysfs `numa_node`, else nvmlDeviceGetMemoryAffinity"
    ),
    "resource.kubernetes.io/numaNode": Words(
        "the same, under the name that all drivers share", "as `numaNode`"
    ),
    "resource.kubernetes.io/pciBusID": Words(
        "the PCI address; of several GPUs that of the first", "nvmlDeviceGetPciInfo_v3; of `vfio` sysfs"
    ),
    "resource.kubernetes.io/pcieRoot": Words(
        "the PCIe root, which a network card may have in common", "sysfs, the path of the device"
    ),
    "pcieSwitches": Words(
        "the ports of PCIe switches above the GPU, from the root down", "sysfs, the path of the device"
    ),
    "cpuAffinity": Words("the CPUs near the GPU", "sysfs `local_cpulist`"),
    "nvlinkDomain": Words(
        "the island: GPUs that NVLinks connect, directly or through others", "nvmlDeviceGetNvLinkState"
    ),
    "nvlinkMesh": Words(
        "the mesh: GPUs each of which is linked to each other one", "nvmlDeviceGetNvLinkState"
    ),
    "nvlinkPeers": Words("the indexes of the GPUs that it is linked to", "nvmlDeviceGetNvLinkState"),
    "nvlinkPeerCount": Words("how many those are", "nvmlDeviceGetNvLinkState"),
    "nvlinkPeerLinks": Words(
        "how many NVLinks lead to each of them: one number, or one for each", "nvmlDeviceGetNvLinkState"
    ),
    "fabricClique": Words("the clique of an NVLink fabric of several nodes", "nvmlDeviceGetGpuFabricInfoV"),
    "gpuModuleID": Words(
        "the place on the baseboard, where NVSwitches are shared out",
        "nvmlDeviceGetModuleId, or the fabric manager",
    ),
    "partition1": Words("the fabric partition of one GPU that it is", "the fabric manager"),
    "partition2": Words("the fabric partition of two GPUs that it is in", "the fabric manager"),
    "partition4": Words("the fabric partition of four GPUs that it is in", "the fabric manager"),
    "partition8": Words("the fabric partition of eight GPUs that it is in", "the fabric manager"),
}
FORMS = {
    "sharing": Words("`none`, `time-slicing` or `mps`", _OWN),
    "memoryIsolation": Words(
        (
            "what keeps its memory from others: `hardware`, `cgroup`, `mps` or `none`; absent where "
            "nobody can promise"
        ),
        _OWN,
    ),
    "memoryLimits": Words(
        "`cgroup`: the NVIDIA driver holds shares to their memory", "nvmlDeviceGetMemoryLimits_v1"
    ),
    "memoryLimitsWithheld": Words("why the NVIDIA driver does not hold them, though it is new enough", _OWN),
    "migCapable": Words("whether it could be partitioned", "nvmlDeviceGetMigMode"),
    "migWithheld": Words("why it is not, where the node configuration asks for it", _OWN),
}
VIRTUAL = {
    "virtualization": Words(
        (
            "whether the node is a virtual machine with a vGPU, `vgpu`, or the host of such, "
            "`host-vgpu`; else `none`"
        ),
        "nvmlDeviceGetVirtualizationMode",
    ),
    "vgpuProfile": Words("the type of the vGPU that the node has", "nvmlDeviceGetName"),
    "vgpuKind": Words("`mig-backed` or `time-sliced`", "the type's name"),
    "vgpuLicenseStatus": Words("`Licensed` or `Unlicensed`", "nvmlDeviceGetGridLicensableFeatures_v4"),
    "vgpuLicenseProduct": Words(
        "the product that the license is for", "nvmlDeviceGetGridLicensableFeatures_v4"
    ),
    "vgpuFramework": Words("how a host makes the vGPU: `mdev` or `vendor-vfio`", "sysfs"),
    "vgpuSeries": Words(
        "the letter in the type's name that says what it is licensed for: `C`, `Q`, `B`, `A`",
        "the type's name",
    ),
    "frameRateLimit": Words(
        "the most frames a second; absent without a limit", "nvmlDeviceGetSupportedVgpus"
    ),
    "vendorID": Words("the PCI vendor", "sysfs `vendor`"),
    "deviceID": Words("the PCI device id", "sysfs `device`"),
    "iommuGroup": Words("the number of the IOMMU group; it may change with a reboot", "sysfs `iommu_group`"),
    "iommuFDEnabled": Words("whether the kernel offers /dev/iommu", "/dev/iommu"),
    "gpuCount": Words("how many GPUs the device has", "sysfs, the IOMMU group"),
    "virtualFunction": Words("whether it is a virtual function", "sysfs `physfn`"),
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
    "memory": Words(
        "GPU memory, bytes", "nvmlDeviceGetMemoryInfo, or the profile of the partition or the vGPU"
    ),
    "shares": Words("of a shared device: how many shares it has, a number", "the node configuration"),
    "multiprocessors": Words("streaming multiprocessors, a number", _MIG_PROFILE),
    "copyEngines": Words("copy engines, a number", _MIG_PROFILE),
    "decoders": Words("video decoders, a number", _MIG_PROFILE),
    "encoders": Words("video encoders, a number", _MIG_PROFILE),
    "jpegEngines": Words("JPEG engines, a number", _MIG_PROFILE),
    "ofaEngines": Words("optical flow accelerators, a number", _MIG_PROFILE),
    "memorySlice0": Words(
        "and further numbers: 1 for each slice of the GPU's memory that the partition lies on",
        "the place of the partition",
    ),
    "addressableMemory": Words(
        "the window of addresses that the memory regions of a passed GPU need, bytes", "sysfs `resource`"
    ),
}
"""All capacities."""
