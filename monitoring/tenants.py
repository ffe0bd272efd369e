"""The dashboard of tenants and tiers: what they hold, what they use of it, what it costs; each form apart."""

from __future__ import annotations

from monitoring.board import CLUSTERS, NAMESPACES, Board, Panel, Query, Row

_WHO = "{{claim_namespace}} {{class}}"


def _form(title: str, form: str, utilisation: str) -> Row:
    """One form in which GPUs are had; ``utilisation`` says what that means there."""
    chosen = f'{{<tenant>, form="{form}"}}'
    return Row(
        title,
        (
            Panel(
                f"{title}: GPUs held",
                "Parts of GPUs, by tenant and tier.",
                "areas",
                (Query(f"gpu_dra:tenant_tier_gpus:sum{chosen}", _WHO),),
                width=8,
            ),
            Panel(
                f"{title}: memory allocated and used",
                "What was given, and what of it is in use where that is known.",
                "lines",
                (
                    Query(f"gpu_dra:tenant_tier_memory_allocated_bytes:sum{chosen}", f"{_WHO} allocated"),
                    Query(f"gpu_dra:tenant_tier_memory_used_bytes:sum{chosen}", f"{_WHO} used"),
                ),
                unit="bytes",
                width=8,
            ),
            Panel(
                f"{title}: utilisation",
                utilisation,
                "lines",
                (Query(f"gpu_dra:tenant_tier_utilization:ratio{chosen}", _WHO),),
                unit="percentunit",
                most=1,
                width=8,
            ),
        ),
    )


_HOURS = (
    "sum by (claim_namespace, class, form)"
    " (sum_over_time(gpu_dra:tenant_tier_gpus:sum{<tenant>}[$__range:$__interval]))"
    " * $__interval_ms / 3600000"
)

_COST = Row(
    "What it costs",
    (
        Panel(
            "GPU hours and cost",
            "How much of a GPU each tenant had in each tier in the time shown, and that times the price.",
            "table",
            (Query(_HOURS, "GPU hours"), Query(f"{_HOURS} * $price", "Cost")),
            width=12,
        ),
        Panel(
            "GPUs held that did nothing",
            "Parts of GPUs that are held, less the part of the time in which they worked.",
            "areas",
            (
                Query(
                    "gpu_dra:tenant_tier_gpus:sum{<tenant>}"
                    " * (1 - gpu_dra:tenant_tier_utilization:ratio{<tenant>})",
                    f"{_WHO} {{{{form}}}}",
                ),
            ),
        ),
        Panel(
            "Part of the allocated memory that is used",
            "By tenant and tier, where it is known.",
            "lines",
            (Query("gpu_dra:tenant_tier_memory_used:ratio{<tenant>}", f"{_WHO} {{{{form}}}}"),),
            unit="percentunit",
        ),
        Panel(
            "GPUs held, all forms",
            "Parts of GPUs, by tenant.",
            "areas",
            (
                Query(
                    "sum by (claim_namespace) (gpu_dra:tenant_tier_gpus:sum{<tenant>})", "{{claim_namespace}}"
                ),
            ),
        ),
    ),
)

TENANTS = Board(
    uid="gpu-dra-tenants",
    title="GPUs: tenants and tiers",
    meaning="What namespaces hold in each tier, what they use of it, and what it costs.",
    variables=(CLUSTERS, NAMESPACES),
    prices=True,
    rows=(
        _COST,
        _form("Exclusive", "exclusive", "How much of the time the GPU worked."),
        _form("MIG", "mig", "How much of the time the partition worked, where NVML tells it."),
        _form("Time-sliced", "time-slicing", "The part of the GPU's time that the share's processes had."),
        _form("MPS", "mps", "The part of the GPU's time that the share's processes had."),
    ),
)
