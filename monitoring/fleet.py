"""The dashboard of all nodes: how much there is, how it is had, who waits, what is sick."""

from __future__ import annotations

from monitoring.board import CLUSTERS, Board, Panel, Query, Row

_OVERVIEW = Row(
    "At a glance",
    (
        Panel(
            "GPUs",
            "GPUs that the plugins see.",
            "number",
            (Query("sum(gpu_dra:node_gpus:count{<cluster>})"),),
            width=4,
        ),
        Panel(
            "GPUs held",
            "Parts of GPUs that claims have, together.",
            "number",
            (Query("sum(gpu_dra:node_gpus_held:sum{<cluster>})"),),
            width=4,
        ),
        Panel(
            "Occupancy",
            "The part of all GPUs that claims have.",
            "number",
            (Query("sum(gpu_dra:node_gpus_held:sum{<cluster>}) / sum(gpu_dra:node_gpus:count{<cluster>})"),),
            unit="percentunit",
            width=4,
        ),
        Panel(
            "Sick GPUs",
            "GPUs with a fault, of which each has a taint.",
            "number",
            (
                Query(
                    "count(count by (cluster, node, pci_bus_id) (gpu_dra_gpu_sick{<cluster>})) or vector(0)"
                ),
            ),
            width=4,
        ),
        Panel(
            "Pods that wait",
            "Pods without the devices that they claim, those of other drivers among them.",
            "number",
            (Query("sum(gpu_dra:pods_waiting:sum{<cluster>})"),),
            width=4,
            needs="kube-scheduler",
        ),
        Panel(
            "Claims that wait",
            "Claims without an allocation, those for other drivers among them.",
            "number",
            (Query("sum(gpu_dra:claims_waiting:sum{<cluster>})"),),
            width=4,
            needs="kube-controller-manager",
        ),
    ),
)

_OCCUPANCY = Row(
    "How GPUs are had",
    (
        Panel(
            "Occupancy by form",
            "The part of all GPUs that claims have: exclusive, in MIG partitions, time-sliced, by MPS.",
            "areas",
            (Query("sum by (form) (gpu_dra:occupancy:ratio{<cluster>})", "{{form}}"),),
            unit="percentunit",
            most=1,
        ),
        Panel(
            "Devices by state",
            "Devices that nodes publish. Excluded are those whose GPU is in use in another form.",
            "areas",
            (Query("sum by (state) (gpu_dra:devices:sum{<cluster>})", "{{state}}"),),
        ),
        Panel(
            "Free devices by kind and profile",
            "What the next pod could get. Forms of one GPU exclude each other: do not add them up.",
            "lines",
            (
                Query(
                    'sum by (kind, profile) (gpu_dra:devices:sum{<cluster>, state="free"})',
                    "{{kind}} {{profile}}",
                ),
            ),
        ),
        Panel(
            "GPUs held, by node",
            "Parts of GPUs that claims have, and the GPUs of the node.",
            "lines",
            (
                Query("sum by (node) (gpu_dra:node_gpus_held:sum{<cluster>})", "{{node}} held"),
                Query("sum by (node) (gpu_dra:node_gpus:count{<cluster>})", "{{node}} GPUs"),
            ),
        ),
    ),
)

_USE = Row(
    "What is done with them",
    (
        Panel(
            "Utilisation by tier",
            "How busy the GPUs of each tier are, each device by the part of its GPU that it has.",
            "lines",
            (Query("gpu_dra:tier_utilization:ratio{<cluster>}", "{{class}} {{form}}"),),
            unit="percentunit",
            most=1,
        ),
        Panel(
            "Memory: there, allocated, used",
            "Memory of all GPUs, what claims were given of it, and what is in use.",
            "lines",
            (
                Query(
                    "sum(max by (cluster, node, uuid) (gpu_dra_gpu_memory_total_bytes{<cluster>}))", "there"
                ),
                Query("sum(gpu_dra:device_memory_allocated_bytes:max{<cluster>})", "allocated"),
                Query("sum(max by (cluster, node, uuid) (gpu_dra_gpu_memory_used_bytes{<cluster>}))", "used"),
            ),
            unit="bytes",
        ),
        Panel(
            "Power",
            "What the GPUs draw, and what they may draw.",
            "lines",
            (
                Query("sum(max by (cluster, node, uuid) (gpu_dra_gpu_power_watts{<cluster>}))", "drawn"),
                Query(
                    "sum(max by (cluster, node, uuid) (gpu_dra_gpu_power_limit_watts{<cluster>}))", "limit"
                ),
            ),
            unit="watt",
        ),
        Panel(
            "GPU hours of the last hour, by tier",
            "How much of a GPU each tier had, in hours.",
            "areas",
            (
                Query(
                    "sum by (class, form) (gpu_dra:tenant_tier_gpu_hours:sum1h{<cluster>})",
                    "{{class}} {{form}}",
                ),
            ),
        ),
    ),
)

_HEALTH = Row(
    "Health",
    (
        Panel(
            "Sick GPUs by fault",
            "GPUs by the taint that says what is wrong.",
            "areas",
            (
                Query(
                    "count by (key) (max by (cluster, node, pci_bus_id, key) (gpu_dra_gpu_sick{<cluster>}))",
                    "{{key}}",
                ),
            ),
        ),
        Panel(
            "Xids",
            "Errors that the NVIDIA driver reported in the last hour, by number and node.",
            "lines",
            (
                Query(
                    "sum by (node, xid) (increase(gpu_dra_gpu_xids_total{<cluster>}[1h]))",
                    "{{node}} Xid {{xid}}",
                ),
            ),
        ),
        Panel(
            "Alerts that fire",
            "What to do is said in docs/alerts.md.",
            "table",
            (Query('ALERTS{alertname=~"Gpu.+", alertstate="firing"}'),),
            width=24,
            hidden=("Value", "alertstate", "uid"),
        ),
    ),
)

_WAITING = Row(
    "Waiting",
    (
        Panel(
            "Queue time by tier",
            "How long the pods that have a GPU now had waited for their node: the median and nine of ten.",
            "lines",
            (
                Query(
                    "quantile by (class) (0.5, gpu_dra:pod_queue_seconds:max{<cluster>})", "{{class}} median"
                ),
                Query(
                    "quantile by (class) (0.9, gpu_dra:pod_queue_seconds:max{<cluster>})",
                    "{{class}} nine of ten",
                ),
            ),
            unit="s",
            needs="kube-state-metrics",
        ),
        Panel(
            "Prepare",
            "How long it took to make a claim's devices usable on the node: the median and 99 of 100.",
            "lines",
            (
                Query(
                    "histogram_quantile(0.5, sum by (le) (rate(gpu_dra_operation_duration_seconds_bucket"
                    '{<cluster>, operation="prepare"}[$__rate_interval])))',
                    "median",
                ),
                Query(
                    "histogram_quantile(0.99, sum by (le) (rate(gpu_dra_operation_duration_seconds_bucket"
                    '{<cluster>, operation="prepare"}[$__rate_interval])))',
                    "99 of 100",
                ),
            ),
            unit="s",
        ),
    ),
)

FLEET = Board(
    uid="gpu-dra-fleet",
    title="GPUs: fleet",
    meaning="All nodes: how much there is, how it is had, who waits, what is sick.",
    variables=(CLUSTERS,),
    rows=(_OVERVIEW, _OCCUPANCY, _USE, _HEALTH, _WAITING),
)
