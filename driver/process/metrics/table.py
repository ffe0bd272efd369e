"""The table of all series of the driver; the tables of docs/monitoring.md are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Process = Literal["kubeletplugin", "controller", "webhook", "preemptor", "cliques"]
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
        "Operations that have started and not ended, including those that wait for a lock.",
        BOTH,
        ("operation",),
        "2 in the plugin (prepare, unprepare), 1 in the controller (publish)",
    ),
    Series(
        "gpu_dra_operations_total",
        "counter",
        "Operations that have ended; outcome is ok, retryable, permanent or internal.",
        BOTH,
        ("operation", "outcome"),
        "operations x 4 outcomes",
    ),
    Series(
        "gpu_dra_operation_duration_seconds",
        "histogram",
        "Duration of operations.",
        BOTH,
        ("operation", "outcome"),
        "operations x 4 outcomes",
        _OPERATION_SECONDS,
    ),
    Series(
        "gpu_dra_phase_duration_seconds",
        "histogram",
        "Duration of the phases of prepare and unprepare.",
        PLUGIN,
        ("operation", "phase"),
        "2 operations x 8 phases",
        _OPERATION_SECONDS,
    ),
    Series(
        "gpu_dra_journal_write_duration_seconds",
        "histogram",
        "Time to write an entry of the journal.",
        PLUGIN,
        buckets=CALL_SECONDS,
    ),
    Series(
        "gpu_dra_cdi_write_duration_seconds",
        "histogram",
        "Time to write the CDI spec of a claim and the files that it mounts.",
        PLUGIN,
        buckets=CALL_SECONDS,
    ),
    Series(
        "gpu_dra_nvml_call_duration_seconds",
        "histogram",
        "Duration of NVML calls, including failed ones; a call that hangs counts when it returns.",
        BOTH,
        ("call",),
        "NVML calls that the process has made, 80 at most",
        CALL_SECONDS,
    ),
    Series(
        "gpu_dra_nvml_failures_total",
        "counter",
        "NVML calls that failed during a check of the GPUs, by reason.",
        _CONTROLLER,
        ("reason",),
        "6 reasons",
    ),
    Series(
        "gpu_dra_api_request_duration_seconds",
        "histogram",
        "Duration of requests to the API server, for a watch until it began; outcome is 2xx, 4xx, 5xx, "
        "other or unreachable.",
        (*BOTH, "preemptor", "cliques"),
        ("verb", "resource", "outcome"),
        "requests that the process makes, 60 at most",
        CALL_SECONDS,
    ),
    Series(
        "gpu_dra_reflector_restarts_total",
        "counter",
        "Lists and watches of the Kubernetes API that were restarted.",
        ("controller", "preemptor", "cliques"),
    ),
    Series(
        "gpu_dra_plugin_registered",
        "gauge",
        "1 if the kubelet has registered the plugin, else 0.",
        PLUGIN,
        unit_word="0 or 1",
    ),
    Series("gpu_dra_published_slices", "gauge", "ResourceSlices that this node publishes.", _CONTROLLER),
    Series("gpu_dra_published_devices", "gauge", "Devices in the published ResourceSlices.", _CONTROLLER),
    Series(
        "gpu_dra_slice_writes_total",
        "counter",
        "ResourceSlice writes that the API server accepted.",
        _CONTROLLER,
        ("verb",),
        "3: create, update, delete",
    ),
    Series(
        "gpu_dra_publish_age_seconds",
        "gauge",
        "How long a change has been waiting to be published; 0 if everything is published.",
        _CONTROLLER,
    ),
    Series(
        "gpu_dra_webhook_certificate_remaining_seconds",
        "gauge",
        "How long the serving certificate of the webhook is still valid; negative once it has expired.",
        ("webhook",),
    ),
)

_PREEMPTOR: tuple[Process, ...] = ("preemptor",)

_OF_PREEMPTION = (
    Series(
        "gpu_dra_preemptor_leads",
        "gauge",
        "1 if this replica has the Lease and makes room, else 0.",
        _PREEMPTOR,
        unit_word="0 or 1",
    ),
    Series(
        "gpu_dra_preemptor_waiting_pods",
        "gauge",
        "Pods that wait for devices and for which room may be made.",
        _PREEMPTOR,
    ),
    Series(
        "gpu_dra_preemptor_evictions_total",
        "counter",
        "Evictions; outcome is evicted, refused (by the API server, as for a budget) or failed.",
        _PREEMPTOR,
        ("outcome",),
        "3 outcomes",
    ),
    Series(
        "gpu_dra_preemptor_rooms_total",
        "counter",
        "Rooms that were made; outcome is used, taken (by another pod), stuck (a pod did not end), unused "
        "(the scheduler did not place the pod) or gone (the pod is).",
        _PREEMPTOR,
        ("outcome",),
        "5 outcomes",
    ),
)

_CLIQUES: tuple[Process, ...] = ("cliques",)

_OF_CLIQUES = (
    Series(
        "gpu_dra_imex_ready",
        "gauge",
        "1 if nvidia-imex of the host was ready when a claim for an IMEX channel asked last, else 0; absent "
        "before.",
        PLUGIN,
        unit_word="0 or 1",
    ),
    Series(
        "gpu_dra_cliques_leads",
        "gauge",
        "1 if this replica has the Lease and publishes channels, else 0.",
        _CLIQUES,
        unit_word="0 or 1",
    ),
    Series(
        "gpu_dra_cliques_channels",
        "gauge",
        "IMEX channels of each NVLink clique; state is free, held (by a claim) or kept-back (a pod on a node "
        "that is not ready may have it).",
        _CLIQUES,
        ("clique", "state"),
        "3 for each clique",
    ),
    Series(
        "gpu_dra_cliques_nodes", "gauge", "Nodes of each NVLink clique.", _CLIQUES, ("clique",), "the cliques"
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
        "Claims that were prepared or unprepared successfully; operation is prepare or unprepare.",
        PLUGIN,
        ("driver", "operation"),
        "2",
    ),
    Series(
        "nvidia_dra_request_duration_seconds",
        "histogram",
        "Duration of successful prepares and unprepares of a claim.",
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
        "Devices of prepared claims; device_type is the published attribute type.",
        PLUGIN,
        ("node", "driver", "device_type"),
        "device types of the node",
    ),
)

DEVICE = ("claim_namespace", "claim", "pod", "class", "kind", "device", "uuid", "share_id")
"""Whose device it is, and which."""

HELD = ("claim_namespace", "claim", "device", "share_id", "uuid", "pci_bus_id")
CONTAINER = ("claim_pod", "claim_container")
GPU = ("uuid", "pci_bus_id")

_DEVICES = "devices of claims on the node"
_LIMITED = "devices of claims whose memory the NVIDIA driver limits"
_CONTAINERS = "running containers with such a device"
_GPUS = "GPUs of the node"
_READ = "read at each scrape, at most once a second; missing if the GPU does not answer"

_OF_DEVICES = (
    Series(
        "gpu_dra_device_info",
        "gauge",
        "A device of a claim, with its kind and place; one series for each GPU that it spans.",
        PLUGIN,
        (*DEVICE, "pool", "gpu_uuid", "pci_bus_id", "profile"),
        _DEVICES,
    ),
    Series(
        "gpu_dra_device_memory_allocated_bytes",
        "gauge",
        "GPU memory that the claim was given with its device.",
        PLUGIN,
        DEVICE,
        _DEVICES,
    ),
    Series(
        "gpu_dra_device_memory_used_bytes",
        "gauge",
        f"GPU memory of the device that the claim uses; {_READ}.",
        PLUGIN,
        DEVICE,
        _DEVICES,
    ),
    Series(
        "gpu_dra_device_share_ratio",
        "gauge",
        "The fraction of the GPU that the claim has, by memory, or by shares if the device has no memory.",
        PLUGIN,
        DEVICE,
        _DEVICES,
    ),
    Series(
        "gpu_dra_device_utilization_ratio",
        "gauge",
        "How busy the device is; for a share, how busy its processes keep the GPU.",
        PLUGIN,
        DEVICE,
        _DEVICES,
    ),
    Series(
        "gpu_dra_container_gpu_memory_used_bytes",
        "gauge",
        "GPU memory of a claim's device that the processes of a container use, by NVML and their control "
        "groups.",
        PLUGIN,
        ("claim_namespace", "claim", "pod", "container", "device", "uuid", "share_id"),
        "containers with a device of a claim",
    ),
    Series(
        "gpu_dra_partition_info",
        "gauge",
        "MIG partitions that claims have on this node.",
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
        "Shares that claims have on this node.",
        PLUGIN,
        (
            *("claim_namespace", "claim", "device", "share_id", "strategy", "uuid", "pci_bus_id", "shares"),
            *("memory_bytes", "active_thread_percentage", "pinned_memory_mib"),
        ),
        "shares of claims",
    ),
    Series(
        "gpu_dra_claim_memory_limit_bytes",
        "gauge",
        "The most GPU memory that a claim can use.",
        PLUGIN,
        HELD,
        _LIMITED,
    ),
    Series(
        "gpu_dra_claim_memory_used_bytes",
        "gauge",
        "GPU memory that the containers of a claim have allocated, as the NVIDIA driver counts it.",
        PLUGIN,
        HELD,
        _LIMITED,
    ),
    Series(
        "gpu_dra_container_memory_limit_bytes",
        "gauge",
        "The most GPU memory that a container can use.",
        PLUGIN,
        (*HELD, *CONTAINER),
        _CONTAINERS,
    ),
    Series(
        "gpu_dra_container_memory_used_bytes",
        "gauge",
        "GPU memory that a container has allocated, as the NVIDIA driver counts it.",
        PLUGIN,
        (*HELD, *CONTAINER),
        _CONTAINERS,
    ),
    Series(
        "gpu_dra_memory_limits_not_held",
        "gauge",
        "Devices of claims that have lost their memory limit and could not be given it again.",
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
    Series("gpu_dra_gpu_memory_total_bytes", "gauge", "Total memory of a GPU.", PLUGIN, GPU, _GPUS),
    Series(
        "gpu_dra_gpu_memory_allocated_bytes",
        "gauge",
        "Memory of a GPU that its claims were given, in total.",
        PLUGIN,
        GPU,
        _GPUS,
    ),
    Series(
        "gpu_dra_gpu_memory_used_bytes",
        "gauge",
        f"Memory of a GPU that any processes use; {_READ}.",
        PLUGIN,
        GPU,
        _GPUS,
    ),
    Series(
        "gpu_dra_gpu_utilization_ratio",
        "gauge",
        "How busy a GPU is; NVML does not report this with MIG on.",
        PLUGIN,
        GPU,
        _GPUS,
    ),
    Series("gpu_dra_gpu_power_watts", "gauge", "Power draw of a GPU.", PLUGIN, GPU, _GPUS),
    Series("gpu_dra_gpu_power_limit_watts", "gauge", "Power limit of a GPU.", PLUGIN, GPU, _GPUS),
    Series("gpu_dra_gpu_temperature_celsius", "gauge", "Temperature of a GPU.", PLUGIN, GPU, _GPUS),
    Series(
        "gpu_dra_devices",
        "gauge",
        "Devices that the node offers. tainted: a taint keeps pods away; allocated: a claim has it; "
        "excluded: an allocated device takes its place; free: everything else.",
        _CONTROLLER,
        ("kind", "profile", "state"),
        "kinds and profiles of the node x 4 states",
    ),
    Series(
        "gpu_dra_gpu_sick",
        "gauge",
        "A taint on the devices of a GPU that is about its health; the series ends with the taint.",
        _CONTROLLER,
        (*GPU, "key", "value", "effect"),
        "GPUs of the node x faults of each",
        unit_word="always 1",
    ),
    Series(
        "gpu_dra_gpu_xids_total",
        "counter",
        "XIDs that NVML reported for a GPU.",
        _CONTROLLER,
        ("pci_bus_id", "xid"),
        "GPUs of the node x codes of each",
    ),
)

TABLE = Table((*_OF_WORK, *_OF_PREEMPTION, *_OF_CLIQUES, *_OF_DEVICES, *_OF_NVIDIA))
