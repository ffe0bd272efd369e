"""Describes a node: its GPUs, tiers, holders, taints, conditions, driver pods, and what happened."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.cli.output import plain_text
from gpuctl.describe.gpu import holders_section, taints_section
from gpuctl.describe.sections import Section, conditions_section, events_section, fields
from gpuctl.doctor.outside.programs import programs_of
from gpuctl.fleet.gpus import GpuState, Object
from gpuctl.fleet.memory import bytes_text, not_held
from gpuctl.fleet.nodes import NodeView
from gpuctl.plan.topology import Matrix, matrix_table
from gpuctl.status.picture import HEADS, rows


def node_sections(
    view: NodeView,
    node: Object | None,
    matrix: Matrix | None,
    pods: Sequence[Object] | None,
    events: Sequence[Object] | None,
) -> list[Section]:
    """The sections about a node; ``node``, ``pods`` and ``events`` are None if they may not be read."""
    status = (node or {}).get("status") or {}
    info = status.get("nodeInfo") or {}
    tiers = [(row[2], *row[3:]) for row in rows([view.state], wide=False)]
    found = [
        Section(
            f"Node {view.name}",
            fields(
                ("GPUs", len(view.gpus)),
                ("Product", view.state.product),
                ("NVIDIA driver", view.state.driver_version),
                ("Kubelet", info.get("kubeletVersion")),
                ("Kernel", info.get("kernelVersion")),
                ("Container runtime", info.get("containerRuntimeVersion")),
                ("Closed to pods", "yes" if ((node or {}).get("spec") or {}).get("unschedulable") else None),
                ("Pool", view.state.pool_problem or view.state.missing or "can be used"),
            ),
            note=None if node is not None else "the Node object does not exist, or you may not read it",
        ),
        Section("GPUs", heads=_GPU_HEADS, rows=tuple(map(_gpu, view.gpus))),
        Section("Tiers", heads=(HEADS[2], *HEADS[3:]), rows=tuple(tiers)),
        holders_section(view.gpus),
        taints_section(view.gpus),
    ]
    unheld = tuple((line,) for line in not_held(view.state.memory))
    if unheld:
        found.append(Section("Memory limits that are not held", heads=("limit",), rows=unheld))
    withheld = tuple((one.device, one.reason) for one in view.state.withheld_partitions)
    if withheld:
        found.append(Section("No partitions", heads=("device", "reason"), rows=withheld))
    if matrix is not None:
        found.append(Section("Topology", drawing=plain_text(matrix_table("", matrix)).strip("\n")))
    conditions = [(view.name, one) for one in status.get("conditions") or ()]
    return [*found, conditions_section(conditions), _driver_pods(pods), events_section(events)]


_GPU_HEADS = ("gpu", "pci address", "uuid", "memory", "taken", "health")


def _gpu(gpu: GpuState) -> tuple[str, ...]:
    memory = "-" if gpu.memory_bytes is None else bytes_text(gpu.memory_bytes)
    health = ", ".join(str(one.taint) for one in gpu.taints) or "ok"
    return (gpu.label, gpu.pci or "-", gpu.uuid or "-", memory, f"{100 * gpu.used:.0f} %", health)


def _driver_pods(pods: Sequence[Object] | None) -> Section:
    """The driver's pods on the node, with the restarts of their containers."""
    if pods is None:
        return Section("Driver pods", note="you may not read pods")
    # A pod counts by the program that its containers run, whatever its name and labels are.
    found = []
    for pod in pods:
        programs = programs_of(pod["spec"])
        if programs:
            status = pod.get("status") or {}
            statuses = status.get("containerStatuses") or ()
            ready = sum(bool(one.get("ready")) for one in statuses)
            restarts = sum(int(one.get("restartCount") or 0) for one in statuses)
            name = f"{pod['metadata'].get('namespace')}/{pod['metadata']['name']}"
            found.append(
                (
                    *(name, ", ".join(programs), str(status.get("phase") or "-")),
                    *(f"{ready}/{len(statuses)}", str(restarts)),
                )
            )
    return Section("Driver pods", heads=("pod", "program", "phase", "ready", "restarts"), rows=tuple(found))
