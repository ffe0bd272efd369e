"""The table of all series of the driver; the tables of docs/metrics.md are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Process = Literal["kubeletplugin", "controller", "webhook"]
"""The processes that serve numbers."""

_UNITS = {
    "_seconds": "seconds",
    "_bytes": "bytes",
    "_ratio": "0 to 1",
    "_watts": "watts",
    "_celsius": "°C",
    "_total": "a count since the start",
    "_info": "always 1",
}
"""The unit by the end of a name (prometheus.io/docs/practices/naming)."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series as it is served."""

    # With ``_total`` at the end of a counter.
    name: str
    kind: Literal["gauge", "counter", "histogram"]
    # One sentence.
    help: str
    # The processes that show it.
    processes: tuple[Process, ...]
    labels: tuple[str, ...] = ()
    # How many label sets it can have at one time, in words.
    bound: str = "1"
    # The upper limits of a histogram in seconds.
    buckets: tuple[float, ...] = ()
    # The unit if the name does not end in it.
    unit_word: str = ""

    @property
    def unit(self) -> str:
        """The unit of its values."""
        if self.unit_word:
            return self.unit_word
        found = (unit for end, unit in _UNITS.items() if self.name.endswith(end))
        return next(found, "a number")


@dataclass(frozen=True, slots=True)
class Table:
    """All series, by name."""

    rows: tuple[Series, ...]

    def __getitem__(self, name: str) -> Series:
        """The series of this name; raises KeyError."""
        # Only at the start of a process, when the series are made.
        for one in self.rows:
            if one.name == name:
                return one
        raise KeyError(name)

    def of(self, process: Process | None) -> tuple[Series, ...]:
        """The series that a process shows; all for None."""
        return tuple(one for one in self.rows if process is None or process in one.processes)


@dataclass(frozen=True, slots=True)
class Reading:
    """A value of a series. ``labels`` must be exactly those that the table has for it."""

    series: str
    labels: Mapping[str, str]
    value: float


_OPERATION_SECONDS = (
    *(0.0005, 0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06),
    *(0.125, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 45.0),
)
"""From a phase of a repeated prepare to the kubelet's deadline of 45 s."""

CALL_SECONDS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.03, 0.125, 0.5, 2.0, 5.0, 30.0)
"""From a call that is answered from memory to the deadline of the longest NVML calls, 30 s."""

PLUGIN: tuple[Process, ...] = ("kubeletplugin",)
_CONTROLLER: tuple[Process, ...] = ("controller",)
BOTH: tuple[Process, ...] = ("kubeletplugin", "controller")

# What the two processes do: claims, operations, calls, slices.
_OF_WORK = (
    Series("gpu_dra_prepared_claims", "gauge", "Claims that are prepared on this node.", PLUGIN),
    Series(
        "gpu_dra_operations_in_flight",
        "gauge",
        "Operations that came in and have not ended, those that wait for a lock included.",
        BOTH,
        ("operation",),
        "2 in the plugin (prepare, unprepare), 1 in the controller (publish)",
    ),
    Series(
        "gpu_dra_operations_total",
        "counter",
        "Operations that ended; outcome is ok, retryable, permanent or internal.",
        BOTH,
        ("operation", "outcome"),
        "operations x 4 outcomes",
    ),
    Series(
        "gpu_dra_operation_duration_seconds",
        "histogram",
        "How long operations took.",
        BOTH,
        ("operation", "outcome"),
        "operations x 4 outcomes",
        _OPERATION_SECONDS,
    ),
    Series(
        "gpu_dra_phase_duration_seconds",
        "histogram",
        "How long the phases of prepare and unprepare took.",
        PLUGIN,
        ("operation", "phase"),
        "2 operations x 7 phases",
        _OPERATION_SECONDS,
    ),
    Series(
        "gpu_dra_journal_write_duration_seconds",
        "histogram",
        "How long it took to write an entry of the journal.",
        PLUGIN,
        buckets=CALL_SECONDS,
    ),
    Series(
        "gpu_dra_cdi_write_duration_seconds",
        "histogram",
        "How long it took to write a claim's CDI spec and what it mounts.",
        PLUGIN,
        buckets=CALL_SECONDS,
    ),
    Series(
        "gpu_dra_nvml_call_duration_seconds",
        "histogram",
        "How long calls of NVML took, failed ones included; one that hangs counts once it is back.",
        BOTH,
        ("call",),
        "the calls of NVML that the process has made, 80 at most",
        CALL_SECONDS,
    ),
    Series(
        "gpu_dra_nvml_failures_total",
        "counter",
        "Answers that NVML did not give in a look at the GPUs, by what is wrong.",
        _CONTROLLER,
        ("reason",),
        "6 reasons",
    ),
    Series(
        "gpu_dra_api_request_duration_seconds",
        "histogram",
        "How long requests to the API server took, a watch until it began; outcome is 2xx, 4xx, 5xx, other "
        "or unreachable.",
        BOTH,
        ("verb", "resource", "outcome"),
        "the requests that the process makes, 60 at most",
        CALL_SECONDS,
    ),
    Series(
        "gpu_dra_reflector_restarts_total",
        "counter",
        "Lists and watches of the Kubernetes API that began anew.",
        _CONTROLLER,
    ),
    Series(
        "gpu_dra_plugin_registered",
        "gauge",
        "Whether the kubelet has the plugin registered: 1, or 0.",
        PLUGIN,
        unit_word="0 or 1",
    ),
    Series("gpu_dra_published_slices", "gauge", "ResourceSlices that this node publishes.", _CONTROLLER),
    Series("gpu_dra_published_devices", "gauge", "Devices in the published ResourceSlices.", _CONTROLLER),
    Series(
        "gpu_dra_slice_writes_total",
        "counter",
        "Writes of ResourceSlices that the API server took.",
        _CONTROLLER,
        ("verb",),
        "3: create, update, delete",
    ),
    Series(
        "gpu_dra_publish_age_seconds",
        "gauge",
        "For how long something has waited to be published; 0 when everything is.",
        _CONTROLLER,
    ),
    Series(
        "gpu_dra_webhook_certificate_remaining_seconds",
        "gauge",
        "How long the webhook's serving certificate is still valid; negative once it has expired.",
        ("webhook",),
    ),
)

NVIDIA_DRIVER = "gpu.nvidia.com"
"""The label ``driver``: both drivers have this name."""

_NVIDIA_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8)
"""That driver's own buckets."""

_OF_NVIDIA = (
    Series(
        "nvidia_dra_requests_total",
        "counter",
        "Claims that were prepared or unprepared with success; operation is prepare or unprepare.",
        PLUGIN,
        ("driver", "operation"),
        "2",
    ),
    Series(
        "nvidia_dra_request_duration_seconds",
        "histogram",
        "How long prepare and unprepare of a claim took that had success.",
        PLUGIN,
        ("driver", "operation"),
        "2",
        _NVIDIA_SECONDS,
    ),
    Series(
        "nvidia_dra_requests_inflight",
        "gauge",
        "Claims that are being prepared or unprepared.",
        PLUGIN,
        ("driver", "operation"),
        "2",
    ),
    Series(
        "nvidia_dra_prepared_devices",
        "gauge",
        "Devices that prepared claims have; device_type is the published attribute type.",
        PLUGIN,
        ("node", "driver", "device_type"),
        "types of devices of the node",
    ),
)

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

_OF_DEVICES = (
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
        _CONTROLLER,
        ("kind", "profile", "state"),
        "kinds and profiles of the node x 4 states",
    ),
    Series(
        "gpu_dra_gpu_sick",
        "gauge",
        "A taint that a GPU's devices have because of the GPU's health; gone with the taint.",
        _CONTROLLER,
        (*GPU, "key", "value", "effect"),
        "GPUs of the node x what is wrong with each",
        unit_word="always 1",
    ),
    Series(
        "gpu_dra_gpu_xids_total",
        "counter",
        "XIDs that NVML told of a GPU.",
        _CONTROLLER,
        ("pci_bus_id", "xid"),
        "GPUs of the node x codes that each had",
    ),
)

TABLE = Table((*_OF_WORK, *_OF_DEVICES, *_OF_NVIDIA))
