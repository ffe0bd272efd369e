"""Tells people what a repartition would do, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from gpuctl.mig.plan import counted

if TYPE_CHECKING:
    from gpuctl.repartition.in_the_way import PodInTheWay
    from gpuctl.repartition.plan import Plan

CHANGE_CONFIG = (
    "no drain is needed: change `mig` in the node configuration, for example"
    " `mig: {layout: [1g, 1g, 2g, 3g]}`; the driver applies it when nothing of a GPU is allocated"
    " (docs/node-configuration.md)"
)


def left_to_driver(plan: Plan) -> Iterator[str]:
    """Which GPUs stay as they are, since the driver makes their partitions: a sentence for each mode."""
    for mode in dict.fromkeys(gpu.mode for gpu in plan.by_driver):
        gpus = [str(gpu.pci) for gpu in plan.by_driver if gpu.mode == mode]
        are = "is left as it is" if len(gpus) == 1 else "are left as they are"
        yield f"{', '.join(gpus)} {are}, in {mode} mode: {CHANGE_CONFIG}"


def plan_text(plan: Plan) -> Text:
    """The whole plan."""
    return Text("\n".join(_lines(plan)))


def _lines(plan: Plan) -> Iterator[str]:
    yield from left_to_driver(plan)
    if not plan.wanted:
        if not plan.by_driver:
            yield f"nothing to do: the GPUs of {plan.node} are as wanted"
        return
    for one in plan.wanted:
        now = counted(one.gpu.partitions) or one.gpu.mode
        wish = counted(one.profiles) or ("MIG on, no partition" if one.enabled else "whole, MIG off")
        yield f"{one.gpu.pci}: {now} -> {wish}"
    yield ""
    yield "in the way:" if plan.claims else "nothing is in the way"
    for claim in plan.claims:
        users = ", ".join((*(_told(pod) for pod in claim.pods), *claim.others)) or "nobody uses it now"
        yield f"  claim {claim} has {', '.join(claim.devices)}: {users}"
    yield ""
    yield "steps, with --yes:"
    yield f"  1. cordon {plan.node}" + (" (it is already, and stays so)" if plan.cordoned else "")
    yield f"  2. evict {len(plan.pods)} pod{'s' * (len(plan.pods) != 1)} and wait until their claims are gone"
    yield f"  3. you run on {plan.node}, as root:"
    yield from (f"     {line}" for line in plan.commands.splitlines())
    yield "  4. wait until the slices of the node show the partitions"
    yield "  5. uncordon" if not plan.cordoned else "  5. leave it cordoned"
    yield ""
    yield "nothing was changed; --yes does it"


def _told(pod: PodInTheWay) -> str:
    if pod.of_daemon_set:
        return f"pod {pod} of {pod.controller}, which starts it again in spite of a cordon: stop it first"
    if pod.controller is None:
        return f"pod {pod}, which nobody starts again elsewhere"
    return f"pod {pod} of {pod.controller}"
