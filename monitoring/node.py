"""The dashboard of one node or some: its GPUs, who holds them, and how its driver does."""

from __future__ import annotations

from monitoring.board import CLUSTERS, NODES, Board, Panel, Query, Row


def _slowest(name: str, series: str, legend: str) -> Query:
    """99 of 100 of a histogram took no longer, by labels."""
    by = ", ".join(("le", *(part.strip("{} ") for part in legend.split())))
    return Query(
        f"histogram_quantile(0.99, sum by ({by}) (rate({series}_bucket{{<node>}}[$__rate_interval])))",
        f"{name} {legend}".strip(),
    )


_GPUS = Row(
    "GPUs",
    (
        Panel(
            "Utilisation",
            "How much of the time the GPU worked. NVML tells none of a GPU with MIG.",
            "lines",
            (
                Query(
                    "max by (node, pci_bus_id) (gpu_dra_gpu_utilization_ratio{<node>})",
                    "{{node}} {{pci_bus_id}}",
                ),
            ),
            unit="percentunit",
            most=1,
        ),
        Panel(
            "Used memory",
            "What of the GPU's memory is in use, by whomever.",
            "lines",
            (Query("gpu_dra:gpu_memory_used:ratio{<node>}", "{{node}} {{pci_bus_id}}"),),
            unit="percentunit",
            most=1,
        ),
        Panel(
            "Power",
            "As a part of what the GPU may draw.",
            "lines",
            (
                Query(
                    "max by (node, pci_bus_id) (gpu_dra_gpu_power_watts{<node>})"
                    " / max by (node, pci_bus_id) (gpu_dra_gpu_power_limit_watts{<node>})",
                    "{{node}} {{pci_bus_id}}",
                ),
            ),
            unit="percentunit",
        ),
        Panel(
            "Temperature",
            "Of the GPU itself.",
            "lines",
            (
                Query(
                    "max by (node, pci_bus_id) (gpu_dra_gpu_temperature_celsius{<node>})",
                    "{{node}} {{pci_bus_id}}",
                ),
            ),
            unit="celsius",
        ),
        Panel(
            "What is wrong",
            "Faults of GPUs, each with the taint that says so.",
            "table",
            (Query("max by (node, pci_bus_id, uuid, key, value, effect) (gpu_dra_gpu_sick{<node>})"),),
            hidden=("Value",),
        ),
        Panel(
            "Xids",
            "Errors that the NVIDIA driver reported in the last hour.",
            "lines",
            (
                Query(
                    "sum by (node, pci_bus_id, xid) (increase(gpu_dra_gpu_xids_total{<node>}[1h]))",
                    "{{node}} {{pci_bus_id}} Xid {{xid}}",
                ),
            ),
        ),
    ),
)

_HOLDERS = Row(
    "Who holds what",
    (
        Panel(
            "Devices of claims",
            "Each device that a claim has.",
            "table",
            (
                Query(
                    "max by (node, claim_namespace, claim, pod, class, kind, profile, device, pci_bus_id,"
                    " uuid) (gpu_dra_device_info{<node>})"
                ),
            ),
            width=24,
            hidden=("Value",),
        ),
        Panel(
            "Used memory by claim",
            "What each device's holder uses of its memory, where that is known.",
            "lines",
            (
                Query(
                    "gpu_dra:device_memory_used_bytes:max{<node>}",
                    "{{claim_namespace}}/{{claim}} {{device}}",
                ),
            ),
            unit="bytes",
        ),
        Panel(
            "GPUs held, by form",
            "Parts of GPUs that claims have.",
            "areas",
            (Query("sum by (form) (gpu_dra:node_gpus_held:sum{<node>})", "{{form}}"),),
        ),
    ),
)

_DRIVER = Row(
    "The driver",
    (
        Panel(
            "Registered",
            "Whether the kubelet knows the plugin: 1 when it does.",
            "lines",
            (Query("max by (node) (gpu_dra_plugin_registered{<node>})", "{{node}}"),),
            most=1,
        ),
        Panel(
            "Not yet published",
            "For how long slices have not said what the node offers; 0 when they do.",
            "lines",
            (Query("max by (node) (gpu_dra_publish_age_seconds{<node>})", "{{node}}"),),
            unit="s",
        ),
        Panel(
            "Calls of the kubelet",
            "Claims prepared and unprepared in a second, by outcome.",
            "lines",
            (
                Query(
                    "sum by (operation, outcome) (rate(gpu_dra_operations_total"
                    '{<node>, operation=~"prepare|unprepare"}[$__rate_interval]))',
                    "{{operation}} {{outcome}}",
                ),
            ),
            unit="ops",
        ),
        Panel(
            "Phases of prepare and unprepare",
            "99 of 100 took no longer.",
            "lines",
            (_slowest("", "gpu_dra_phase_duration_seconds", "{{operation}} {{phase}}"),),
            unit="s",
        ),
        Panel(
            "NVML",
            "How long its calls took: 99 of 100 took no longer.",
            "lines",
            (_slowest("", "gpu_dra_nvml_call_duration_seconds", "{{call}}"),),
            unit="s",
        ),
        Panel(
            "API server and disk",
            "How long requests and writes took: 99 of 100 took no longer.",
            "lines",
            (
                _slowest("", "gpu_dra_api_request_duration_seconds", "{{verb}} {{resource}}"),
                _slowest("journal", "gpu_dra_journal_write_duration_seconds", ""),
                _slowest("CDI", "gpu_dra_cdi_write_duration_seconds", ""),
            ),
            unit="s",
        ),
    ),
)

NODE = Board(
    uid="gpu-dra-node",
    title="GPUs: node",
    meaning="GPUs of a node, who holds them, and how its driver does.",
    variables=(CLUSTERS, NODES),
    rows=(_GPUS, _HOLDERS, _DRIVER),
)
