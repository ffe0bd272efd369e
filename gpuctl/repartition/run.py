"""Plans a repartition, and shows the plan or carries it out step by step; ends with the exit code."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click
from rich.text import Text

from driver.devices.names import checked_node_name
from driver.errors import ConfigError
from driver.kube.client import KubeClient
from driver.nvml.pci_address import PciAddress
from gpuctl.cli.cluster import ClusterView
from gpuctl.cli.output import document, emit, say
from gpuctl.plan.partitions import Layout, gpu_addresses, profiles_text
from gpuctl.repartition import in_the_way, waiting
from gpuctl.repartition.node_gpus import NodeGpu, complete_slices, node_gpus, read_node
from gpuctl.repartition.wanted import MigConfig, Wanted, commands_text, still_missing, wanted_of

_NOT_DONE_EXIT_CODE = 3

_CHANGE_CONFIG = (
    "no drain is needed: change `mig` in the node configuration, for example"
    " `mig: {layout: [1g, 1g, 2g, 3g]}`; the driver applies it when nothing of a GPU is allocated"
    " (docs/node-configuration.md)"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is known before the first step.

    ``by_driver`` are GPUs whose partitions the driver makes, so nothing is done to them. ``wanted`` are the
    GPUs that have to change, without those that are as wanted already. ``claims`` have devices of these.
    """

    node: str
    cordoned: bool
    by_driver: tuple[NodeGpu, ...]
    wanted: tuple[Wanted, ...]
    claims: tuple[in_the_way.ClaimInTheWay, ...]
    commands: str

    @property
    def pods(self) -> tuple[in_the_way.PodInTheWay, ...]:
        """The pods that use the claims, each once."""
        return in_the_way.pods_of(self.claims)

    def as_data(self) -> dict[str, Any]:
        """The plan for scripts."""
        return {
            "node": self.node,
            "cordoned": self.cordoned,
            "gpus": [one.as_data() for one in self.wanted],
            "madeByDriver": [{"gpu": str(gpu.pci), "mode": gpu.mode} for gpu in self.by_driver],
            "inTheWay": self.claims,
        }


def plan_node_change(
    client: KubeClient, node: str, layout: Layout | MigConfig, addresses: Sequence[str], machine: str | None
) -> Plan:
    """What a repartition of the node would do.

    Raises ConfigError for a node, a GPU or a layout that cannot be used, and ApiError.
    """
    view, node = ClusterView(client), checked_node_name(node)
    stored, slices = read_node(view, node)
    gpus = _chosen(node_gpus(slices), addresses)
    by_driver = tuple(gpu for gpu in gpus if gpu.mode in ("dynamic", "layout"))
    ours = [gpu for gpu in gpus if gpu not in by_driver]
    wanted = wanted_of(ours, layout, machine)
    left = tuple(one for one in wanted if not one.reached(None if one.gpu.mode == "unpublished" else one.gpu))
    return Plan(
        node=node,
        cordoned=bool((stored.get("spec") or {}).get("unschedulable")),
        by_driver=by_driver,
        wanted=left,
        claims=in_the_way.claims_using(view, node, {one.gpu.pci for one in left}),
        commands=commands_text(left, layout),
    )


def show(plan: Plan, output: str) -> None:
    """Print the plan without doing anything."""
    emit(output, document("Repartition", plan.as_data()), lambda: Text("\n".join(_lines(plan))))


def repartition(client: KubeClient, plan: Plan, timeout_seconds: float, output: str) -> None:
    """Do what the plan says, and end with exit code 3 if not all is as wanted.

    Raises ConfigError if pods of DaemonSets are in the way, and ApiError for a failure that does not pass.
    """
    if not plan.wanted:
        show(plan, output)
        if plan.by_driver:
            click.get_current_context().exit(_NOT_DONE_EXIT_CODE)
        return
    if daemons := ", ".join(str(pod) for pod in plan.pods if pod.of_daemon_set):
        raise ConfigError(
            f"{daemons} belong to DaemonSets, which restart them despite a cordon",
            "stop these DaemonSets first",
        )
    try:
        missing = carry_out(client, plan, timeout_seconds, lambda text: say(text, err=output != "table"))
    except BaseException:  # an interrupt as well: the node's next user has to know
        say(f"{plan.node} may still be cordoned: `kubectl uncordon {plan.node}` undoes that", err=True)
        raise
    _report(plan, missing, output)
    if missing or plan.by_driver:
        click.get_current_context().exit(_NOT_DONE_EXIT_CODE)


def _report(plan: Plan, missing: Sequence[str], output: str) -> None:
    """Print how the change ended."""
    cordoned = bool(missing) or plan.cordoned
    if output != "table":
        result = {"done": not missing, "missing": missing, "cordoned": cordoned}
        emit(output, document("Repartition", {**plan.as_data(), **result}), lambda: "")
    if missing:
        say("not done in time:", err=True)
        for one in missing:
            say(f"  {one}", err=True)
    if cordoned:
        say(f"{plan.node} is left cordoned: `kubectl uncordon {plan.node}` undoes that", err=True)
    for line in _left_to_driver(plan):
        say(line, err=True)


def _chosen(published: dict[PciAddress, NodeGpu], addresses: Sequence[str]) -> list[NodeGpu]:
    """The named GPUs, published or not; without names all published GPUs that can do MIG."""
    if not addresses:
        return [gpu for gpu in published.values() if gpu.mode != "whole" or gpu.mig_capable]
    models = {gpu.product for gpu in published.values()}
    product = models.pop() if len(models) == 1 else None
    # A GPU with MIG on and no partition is not published, and is what an admin may well want to change.
    return [published.get(pci) or NodeGpu(pci, "unpublished", product) for pci in gpu_addresses(addresses)]


def carry_out(
    client: KubeClient,
    plan: Plan,
    timeout_seconds: float,
    say: Callable[[str], None],
    pause: Callable[[float], None] = waiting.sleep,
) -> tuple[str, ...]:
    """Change the node as planned; what is still missing when the time is over, nothing if all is as wanted.

    A node that was cordoned before stays so, and one where something is missing, too. ``say`` is called with
    each step. Raises ApiError for a failure that does not pass; the node may be cordoned then.
    """
    view, node = ClusterView(client), plan.node
    deadline = time.monotonic() + timeout_seconds
    say_once = waiting.SayOnce(say)

    def claims_left() -> Iterable[str]:
        claims = in_the_way.claims_using(view, node, {one.gpu.pci for one in plan.wanted})
        left = []
        for pod in in_the_way.pods_of(claims):
            if not pod.ends:
                refused = in_the_way.evict(client, pod)
                left.append(f"pod {pod} cannot be evicted: {refused}" if refused else f"pod {pod} is ending")
        # After its last pod a claim keeps its devices until Kubernetes' controller clears its allocation.
        return left or (f"claim {claim} still has {', '.join(claim.devices)}" for claim in claims)

    def partitions_missing() -> Iterable[str]:
        slices = complete_slices(view, node)
        if slices is None:
            return (f"the slices of {node} are not complete",)
        return still_missing(plan.wanted, node_gpus(slices))

    # Cordoned before the first eviction: else the scheduler could give the GPUs to the next pod.
    if not plan.cordoned:
        in_the_way.set_cordon(client, node, cordoned=True)
        say(f"{node} is cordoned: it gets no new pods")
    if left := waiting.wait_for_none(claims_left, deadline, pause, say_once):
        return left
    say(f"the GPUs are not in use any more; now run on {node}, as root:\n\n{plan.commands}\n")
    if left := waiting.wait_for_none(partitions_missing, deadline, pause, say_once):
        return left
    say("the slices show the wanted partitions")
    if not plan.cordoned:
        in_the_way.set_cordon(client, node, cordoned=False)
        say(f"{node} is uncordoned")
    return ()


def _left_to_driver(plan: Plan) -> Iterator[str]:
    """A sentence for each mode in which the driver makes partitions, about GPUs that are left alone."""
    for mode in dict.fromkeys(gpu.mode for gpu in plan.by_driver):
        gpus = [str(gpu.pci) for gpu in plan.by_driver if gpu.mode == mode]
        are = "is left as it is" if len(gpus) == 1 else "are left as they are"
        yield f"{', '.join(gpus)} {are}, in {mode} mode: {_CHANGE_CONFIG}"


def _lines(plan: Plan) -> Iterator[str]:
    yield from _left_to_driver(plan)
    if not plan.wanted:
        if not plan.by_driver:
            yield f"nothing to do: the GPUs of {plan.node} already have the wanted partitions"
        return
    for one in plan.wanted:
        now = profiles_text(one.gpu.partitions) or one.gpu.mode
        wish = profiles_text(one.profiles) or ("MIG on, no partition" if one.enabled else "whole, MIG off")
        yield f"{one.gpu.pci}: {now} -> {wish}"
    yield ""
    yield "in the way:" if plan.claims else "nothing is in the way"
    yield from (claim.line(_pod_words) for claim in plan.claims)
    yield ""
    yield "steps, with --yes:"
    yield f"  1. cordon {plan.node}" + (" (it already is, and stays so)" if plan.cordoned else "")
    yield f"  2. evict {len(plan.pods)} pod{'s' * (len(plan.pods) != 1)} and wait until their claims are gone"
    yield f"  3. you run on {plan.node}, as root:"
    yield from (f"     {line}" for line in plan.commands.splitlines())
    yield "  4. wait until the slices of the node show the partitions"
    yield "  5. uncordon" if not plan.cordoned else "  5. leave it cordoned"
    yield ""
    yield "nothing was changed; --yes does it"


def _pod_words(pod: in_the_way.PodInTheWay) -> str:
    if pod.of_daemon_set:
        return f"pod {pod} of {pod.controller}, which restarts it despite a cordon: stop it first"
    if pod.controller is None:
        return f"pod {pod}, which has no controller that recreates it"
    return f"pod {pod} of {pod.controller}"
