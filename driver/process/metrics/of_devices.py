"""The series about GPUs, the devices that they are offered as, and the claims that have them."""

from __future__ import annotations

from driver.process.metrics.of_work import CONTROLLER, PLUGIN
from driver.process.metrics.series import Series

DEVICE = ("claim_namespace", "claim", "pod", "class", "kind", "device", "uuid", "share_id")
"""Whose device it is, and which."""

HELD = ("claim_namespace", "claim", "device", "share_id", "uuid", "pci_bus_id")
CONTAINER = ("claim_pod", "claim_container")
GPU = ("uuid", "pci_bus_id")

_DEVICES = "devices that claims of the node have"
_LIMITED = "devices of claims that the NVIDIA driver holds to their memory"
_CONTAINERS = "live containers with such a device"
_GPUS = "GPUs of the node"
_READ = "read when it is asked for, at most once a second; left out where the GPU does not answer"

OF_DEVICES = (
    Series(
        "gpu_dra_device_info",
        "gauge",
        "A device that a claim has, with what it is and where it lies; one for each GPU that it spans.",
        PLUGIN,
        (*DEVICE, "pool", "gpu_uuid", "pci_bus_id", "profile"),
        _DEVICES,
    ),
    Series(
        "gpu_dra_device_memory_allocated_bytes",
        "gauge",
        "GPU memory that the claim has with its device.",
        PLUGIN,
        DEVICE,
        _DEVICES,
    ),
    Series(
        "gpu_dra_device_memory_used_bytes",
        "gauge",
        f"GPU memory that the claim uses of its device; {_READ}.",
        PLUGIN,
        DEVICE,
        _DEVICES,
    ),
    Series(
        "gpu_dra_device_share_ratio",
        "gauge",
        "The part of its GPU that the claim has with its device, by memory, or by shares where it has none.",
        PLUGIN,
        DEVICE,
        _DEVICES,
    ),
    Series(
        "gpu_dra_device_utilization_ratio",
        "gauge",
        "How busy the claim's device is; of a share, how busy its processes keep the GPU.",
        PLUGIN,
        DEVICE,
        _DEVICES,
    ),
    Series(
        "gpu_dra_container_gpu_memory_used_bytes",
        "gauge",
        "GPU memory that the processes of a container use of a claim's device, as NVML and their control "
        "groups tell.",
        PLUGIN,
        ("claim_namespace", "claim", "pod", "container", "device", "uuid", "share_id"),
        "containers with a device of a claim",
    ),
    Series(
        "gpu_dra_partition_info",
        "gauge",
        "MIG partitions that claims use on this node, each 1.",
        PLUGIN,
        (
            *("claim_namespace", "claim", "device", "profile", "uuid", "parent_uuid", "pci_bus_id"),
            *("gpu_instance_id", "compute_instance_id"),
        ),
        "MIG partitions of claims",
    ),
    Series(
        "gpu_dra_share_info",
        "gauge",
        "Shares that claims have on this node, each 1.",
        PLUGIN,
        (
            *("claim_namespace", "claim", "device", "share_id", "strategy", "uuid", "pci_bus_id", "shares"),
            *("memory_bytes", "active_thread_percentage", "pinned_memory_mib"),
        ),
        "shares of claims",
    ),
    Series(
        "gpu_dra_claim_memory_guaranteed_bytes",
        "gauge",
        "GPU memory that a claim is guaranteed.",
        PLUGIN,
        HELD,
        _LIMITED,
    ),
    Series(
        "gpu_dra_claim_memory_limit_bytes",
        "gauge",
        "The most GPU memory that a claim gets.",
        PLUGIN,
        HELD,
        _LIMITED,
    ),
    Series(
        "gpu_dra_claim_memory_used_bytes",
        "gauge",
        "GPU memory that is allocated in containers of a claim, as the NVIDIA driver tells.",
        PLUGIN,
        HELD,
        _LIMITED,
    ),
    Series(
        "gpu_dra_container_memory_guaranteed_bytes",
        "gauge",
        "GPU memory that a container is guaranteed.",
        PLUGIN,
        (*HELD, *CONTAINER),
        _CONTAINERS,
    ),
    Series(
        "gpu_dra_container_memory_limit_bytes",
        "gauge",
        "The most GPU memory that a container gets.",
        PLUGIN,
        (*HELD, *CONTAINER),
        _CONTAINERS,
    ),
    Series(
        "gpu_dra_container_memory_used_bytes",
        "gauge",
        "GPU memory that is allocated in containers, by container, as the NVIDIA driver tells.",
        PLUGIN,
        (*HELD, *CONTAINER),
        _CONTAINERS,
    ),
    Series(
        "gpu_dra_memory_limits_not_held",
        "gauge",
        "Devices of claims whose memory limit is gone and could not be set again.",
        PLUGIN,
    ),
    Series(
        "gpu_dra_gpu_info",
        "gauge",
        "A GPU that NVML lists.",
        PLUGIN,
        (*GPU, "product"),
        _GPUS,
    ),
    Series("gpu_dra_gpu_memory_total_bytes", "gauge", "All memory of a GPU.", PLUGIN, GPU, _GPUS),
    Series(
        "gpu_dra_gpu_memory_allocated_bytes",
        "gauge",
        "Memory of a GPU that claims have with their devices, all together.",
        PLUGIN,
        GPU,
        _GPUS,
    ),
    Series(
        "gpu_dra_gpu_memory_used_bytes",
        "gauge",
        f"Memory of a GPU that processes have, whoever they are; {_READ}.",
        PLUGIN,
        GPU,
        _GPUS,
    ),
    Series(
        "gpu_dra_gpu_utilization_ratio",
        "gauge",
        "How busy a GPU is; NVML does not tell with MIG on.",
        PLUGIN,
        GPU,
        _GPUS,
    ),
    Series("gpu_dra_gpu_power_watts", "gauge", "What a GPU draws.", PLUGIN, GPU, _GPUS),
    Series("gpu_dra_gpu_power_limit_watts", "gauge", "What a GPU may draw.", PLUGIN, GPU, _GPUS),
    Series("gpu_dra_gpu_temperature_celsius", "gauge", "How hot a GPU is.", PLUGIN, GPU, _GPUS),
    Series(
        "gpu_dra_devices",
        "gauge",
        "Devices that the node offers. One with a taint that keeps pods away is tainted, one that a claim "
        "has is allocated, one whose place another device of a claim takes is excluded; the rest is free.",
        CONTROLLER,
        ("kind", "profile", "state"),
        "kinds and profiles of the node x 4 states",
    ),
    Series(
        "gpu_dra_gpu_sick",
        "gauge",
        "A taint that a GPU's devices have because of the GPU's health; gone with the taint.",
        CONTROLLER,
        (*GPU, "key", "value", "effect"),
        "GPUs of the node x what is wrong with each",
        unit_word="always 1",
    ),
    Series(
        "gpu_dra_gpu_xids_total",
        "counter",
        "XIDs that NVML told of a GPU.",
        CONTROLLER,
        ("pci_bus_id", "xid"),
        "GPUs of the node x codes that each had",
    ),
)
