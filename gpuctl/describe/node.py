"""Describes a node: its GPUs, tiers, holders, taints, conditions, driver pods, and what happened."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.describe.gpu import holders_section, taints_section
from gpuctl.describe.sections import Section, conditions_section, events_section, fields
from gpuctl.doctor.outside.programs import programs_of
from gpuctl.fleet.gpus import GpuState, Object
from gpuctl.fleet.memory import bytes_text, not_held
from gpuctl.fleet.nodes import NodeView
from gpuctl.plan.topology import legend, topology_of, topology_rows

_COUNTS = ("devices", "allocated", "free", "at_once", "excluded", "unavailable", "claims")
"""What is counted of each tier: fields of TierCount."""


def node_sections(
    view: NodeView,
    node: Object | None,
    pods: Sequence[Object] | None,
    events: Sequence[Object] | None,
) -> list[Section]:
    """The sections about a node; ``node``, ``pods`` and ``events`` are None if they may not be read."""
    status, spec = ((node or {}).get(part) or {} for part in ("status", "spec"))
    info = status.get("nodeInfo") or {}
    about = fields(
        {
            "GPUs": len(view.gpus),
            "Product": view.state.product,
            "NVIDIA driver": view.state.driver_version,
            "Kubelet": info.get("kubeletVersion"),
            "Kernel": info.get("kernelVersion"),
            "Container runtime": info.get("containerRuntimeVersion"),
            "Closed to pods": "yes" if spec.get("unschedulable") else None,
            "Pool": view.state.pool_problem or view.state.missing or "can be used",
        }
    )
    topology = topology_of(view.name, view.gpus)
    unread = None if node is not None else "the Node object does not exist, or you may not read it"
    tiers = [
        {"tier": tier, **{name.replace("_", "-"): str(getattr(count, name)) for name in _COUNTS}}
        for tier, count in sorted(view.state.tiers.items())
    ]
    unheld = [{"limit": line} for line in not_held(view.state.memory)]
    withheld = [{"device": one.device, "reason": one.reason} for one in view.state.withheld_partitions]
    return [
        Section(f"Node {view.name}", about, note=unread),
        Section("GPUs", rows=[_gpu(gpu) for gpu in view.gpus]),
        Section("Tiers", rows=tiers),
        holders_section(view.gpus),
        taints_section(view.gpus),
        *([Section("Memory limits that are not held", rows=unheld)] if unheld else []),
        *([Section("No partitions", rows=withheld)] if withheld else []),
        Section("Topology", rows=topology_rows(topology), note=legend(topology)),
        conditions_section((view.name, condition) for condition in status.get("conditions") or ()),
        _driver_pods(pods),
        events_section(events),
    ]


def _gpu(gpu: GpuState) -> dict[str, str]:
    return {
        "gpu": gpu.label,
        "pci address": gpu.pci or "-",
        "uuid": gpu.uuid or "-",
        "memory": "-" if gpu.memory_bytes is None else bytes_text(gpu.memory_bytes),
        "taken": f"{100 * gpu.used:.0f} %",
        "health": ", ".join(str(one.taint) for one in gpu.taints) or "ok",
    }


def _driver_pods(pods: Sequence[Object] | None) -> Section:
    """The driver's pods on the node, with the restarts of their containers."""
    if pods is None:
        return Section("Driver pods", note="you may not read pods")
    rows = []
    for pod in pods:
        # A pod counts by the program that its containers run, whatever its name and labels are.
        programs = programs_of(pod["spec"])
        status = pod.get("status") or {}
        containers = status.get("containerStatuses") or ()
        row = {
            "pod": f"{pod['metadata'].get('namespace')}/{pod['metadata']['name']}",
            "program": ", ".join(programs),
            "phase": str(status.get("phase") or "-"),
            "ready": f"{sum(bool(one.get('ready')) for one in containers)}/{len(containers)}",
            "restarts": str(sum(int(one.get("restartCount") or 0) for one in containers)),
        }
        rows += [row] if programs else []
    return Section("Driver pods", rows=rows)
