"""Tells people what is wrong with a GPU, what is in the way, and what `--yes` would do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuctl.heal.plan import HealPlan
    from gpuctl.repartition.in_the_way import PodInTheWay


def plan_text(plan: HealPlan) -> Text:
    """The whole plan."""
    return Text("\n".join(_lines(plan)))


def _lines(plan: HealPlan) -> Iterator[str]:
    gpu = plan.gpu
    name = f"GPU {gpu.pci} of {plan.node}" + (f" ({gpu.product})" if gpu.product else "")
    if plan.remedy is None:
        yield f"{name} is well: none of its devices has a taint that says otherwise"
        return
    yield f"{name} is not well:"
    for one in gpu.illnesses:
        where = "" if one.all_devices else f" (on {', '.join(one.devices)})"
        yield f"  {one.taint}{where}: {one.meaning}"
    yield ""
    if plan.remedy == "reboot":
        yield "a reset does not help: the machine has to be restarted, which is yours to do:"
        yield f"  kubectl drain {plan.node} --ignore-daemonsets, restart it, kubectl uncordon {plan.node}"
        return
    if plan.remedy == "other":
        yield "a reset does not help: the line above says what does"
        return
    yield from _in_the_way(plan)
    yield ""
    yield from _steps(plan)


def _in_the_way(plan: HealPlan) -> Iterator[str]:
    others = ", ".join(map(str, plan.addresses[1:]))
    if others:
        yield f"it is reset together with {others}, which NVLinks connect with it"
    if not plan.claims and not plan.processes and not plan.unknown:
        yield "nothing is in the way"
        return
    yield "in the way:"
    for claim in plan.claims:
        users = ", ".join((*(_told(pod) for pod in claim.pods), *claim.others)) or "nobody uses it now"
        yield f"  claim {claim} has {', '.join(claim.devices)}: {users}"
    for process in plan.processes:
        yield f"  {process}"
    if plan.unknown:
        yield f"  the processes on the node are not known: {plan.unknown}"


def _steps(plan: HealPlan) -> Iterator[str]:
    pods = len(plan.pods)
    evicted = f"{pods} pod{'s' * (pods != 1)}"
    yield "steps, with --yes:"
    yield "  1. taint all devices of the GPU, so that no new pod gets one"
    yield f"  2. evict {evicted} (PodDisruptionBudgets are kept), and wait for claims and processes"
    yield "  3. reset it: nvidia-smi --gpu-reset"
    yield "  4. wait until its taints are gone"
    if plan.lost_partitions:
        yield f"gone after that, since an admin made them: {', '.join(plan.lost_partitions)}"


def _told(pod: PodInTheWay) -> str:
    made = f"of {pod.controller}" if pod.controller else "made by hand, it does not come back"
    return f"pod {pod} ({made}{', ends already' if pod.ends else ''})"
