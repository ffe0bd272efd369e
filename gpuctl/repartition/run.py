"""Runs a repartition: shows the plan, or does it step by step; ends with the exit code."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click
from rich.text import Text

from driver.devices.names import DRIVER_NAME, checked_node_name
from driver.errors import ApiError, ConfigError
from driver.kube.client import KubeClient
from driver.kube.paths import NODES, object_path
from driver.nvml.pci_address import PciAddress
from gpuctl.cli.cluster import ClusterView
from gpuctl.cli.output import document, emit, say
from gpuctl.mig.plan import Layout, counted
from gpuctl.repartition.in_the_way import ClaimInTheWay, NodeChanges, PodInTheWay, claims_in_the_way, pods_of
from gpuctl.repartition.node_gpus import NodeGpu, newest, node_gpus
from gpuctl.repartition.wanted import MigConfig, Wanted, commands_text, still_missing, wanted_of

_NOT_DONE_EXIT_CODE = 3

LOOK_SECONDS = 2.0
"""How often the cluster is read while waiting."""

_CHANGE_CONFIG = (
    "no drain is needed: change `mig` in the node configuration, for example"
    " `mig: {layout: [1g, 1g, 2g, 3g]}`; the driver applies it when nothing of a GPU is allocated"
    " (docs/node-configuration.md)"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is known before the first step.

    ``by_driver`` are GPUs whose partitions the driver makes, so nothing is done to them; ``wanted`` those
    that are to change, without those that are as wanted already; ``claims`` have devices of them.
    """

    node: str
    cordoned: bool
    by_driver: tuple[NodeGpu, ...]
    wanted: tuple[Wanted, ...]
    claims: tuple[ClaimInTheWay, ...]
    commands: str

    @property
    def pods(self) -> tuple[PodInTheWay, ...]:
        """The pods that have the claims, each once."""
        return pods_of(self.claims)

    @property
    def daemons(self) -> tuple[PodInTheWay, ...]:
        """Those that would come back to a cordoned node."""
        return tuple(pod for pod in self.pods if pod.of_daemon_set)

    def as_data(self) -> dict[str, Any]:
        """The plan for scripts."""
        return {
            "node": self.node,
            "cordoned": self.cordoned,
            "gpus": [one.as_data() for one in self.wanted],
            "madeByDriver": [{"gpu": str(gpu.pci), "mode": gpu.mode} for gpu in self.by_driver],
            "inTheWay": [claim.as_data() for claim in self.claims],
        }


def plan_node_change(
    client: KubeClient, node: str, layout: Layout | MigConfig, addresses: Sequence[str], machine: str | None
) -> Plan:
    """What a repartition of the node would do.

    Raises ConfigError for a node, a GPU or a layout that cannot be used, and ApiError.
    """
    view, node = ClusterView(client), checked_node_name(node)
    stored = view.found(object_path(NODES, node))
    if stored is None:
        raise ConfigError(f"there is no node {node}", "`kubectl get nodes` lists them")
    slices = newest(view.slices(), node)
    if slices is None:
        raise ConfigError(
            f"{node} publishes no complete pool of the driver {DRIVER_NAME}", "see that the driver runs there"
        )
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
        claims=claims_in_the_way(view, node, {one.gpu.pci for one in left}),
        commands=commands_text(left, layout),
    )


def show(plan: Plan, output: str) -> None:
    """Print the plan without doing anything."""
    emit(output, document("Repartition", plan.as_data()), lambda: _plan_text(plan))


def walk(client: KubeClient, plan: Plan, timeout_seconds: float, output: str) -> None:
    """Do what the plan says, and end with exit code 3 where not all is as wanted.

    Raises ConfigError where pods of DaemonSets are in the way, and ApiError for one that stays.
    """
    if not plan.wanted:
        show(plan, output)
        if plan.by_driver:
            click.get_current_context().exit(_NOT_DONE_EXIT_CODE)
        return
    if plan.daemons:
        pods = ", ".join(map(str, plan.daemons))
        raise ConfigError(
            f"{pods} belong to DaemonSets, which start them again in spite of a cordon", "stop these first"
        )
    changes = NodeChanges(client, plan.node)
    steps = Walk(ClusterView(client), changes, plan.node, plan.wanted, _teller(output), _pause)
    _walk(plan, steps, timeout_seconds, output)


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def _teller(output: str) -> Any:
    """Steps go to stdout where people read it, to stderr where a script does."""
    return lambda text: say(text, err=output != "table")


def _walk(plan: Plan, walk: Walk, timeout_seconds: float, output: str) -> None:
    try:
        outcome = walk.run(plan.commands, plan.cordoned, timeout_seconds)
    except BaseException:  # an interrupt as well: whoever comes next has to know
        say(f"{plan.node} may still be cordoned: `kubectl uncordon {plan.node}` opens it", err=True)
        raise
    if output != "table":
        result = {"done": not outcome.missing, "missing": list(outcome.missing), "cordoned": outcome.cordoned}
        emit(output, document("Repartition", {**plan.as_data(), **result}), lambda: "")
    if outcome.missing:
        say("not done in time:", err=True)
        for one in outcome.missing:
            say(f"  {one}", err=True)
    if outcome.cordoned:
        say(f"{plan.node} is left cordoned: `kubectl uncordon {plan.node}` opens it", err=True)
    for line in _left_to_driver(plan):
        say(line, err=True)
    if outcome.missing or plan.by_driver:
        click.get_current_context().exit(_NOT_DONE_EXIT_CODE)


def _chosen(published: dict[PciAddress, NodeGpu], addresses: Sequence[str]) -> list[NodeGpu]:
    """The GPUs that are named, also those that are not published; else all that are and know MIG."""
    if not addresses:
        return [gpu for gpu in published.values() if gpu.mode != "whole" or gpu.mig_capable]
    models = {gpu.product for gpu in published.values()}
    product = models.pop() if len(models) == 1 else None
    found = []
    for address in dict.fromkeys(addresses):
        try:
            pci = PciAddress.parse(address)
        except ValueError as error:
            raise ConfigError(str(error), "check --gpu") from error
        found.append(published.get(pci) or NodeGpu(pci, "unpublished", product))
    return found


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a walk ended: ``missing`` is empty when all is as wanted; ``cordoned`` is how the node was left."""

    missing: tuple[str, ...]
    cordoned: bool


class Walk:
    """One walk over one node. ``say`` is called with each step; ``pause`` waits so many seconds."""

    def __init__(
        self,
        view: ClusterView,
        changes: NodeChanges,
        node: str,
        wanted: Sequence[Wanted],
        say: Callable[[str], None],
        pause: Callable[[float], object],
    ) -> None:
        self._view = view
        self._changes = changes
        self._node = node
        self._wanted = wanted
        self._say = say
        self._pause = pause
        self._told: set[str] = set()

    def run(self, commands: str, cordoned: bool, timeout_seconds: float) -> Outcome:
        """Walk until all is as wanted, or the time is over; raises ApiError for one that stays.

        ``cordoned`` says that the node was closed before: then it is left so. After a failure, too.
        """
        deadline = time.monotonic() + timeout_seconds
        if not cordoned:
            self._changes.cordon()
            self._say(f"{self._node} is cordoned: no new pods come to it")
        left = self._wait(self._drained, deadline)
        if left:
            return Outcome(left, cordoned=True)
        self._say(f"nobody uses the GPUs any more; now run on {self._node}, as root:\n\n{commands}\n")
        left = self._wait(self._published, deadline)
        if left:
            return Outcome(left, cordoned=True)
        self._say("the slices show the wanted partitions")
        if not cordoned:
            self._changes.uncordon()
            self._say(f"{self._node} is uncordoned")
        return Outcome((), cordoned)

    def _wait(self, look: Callable[[], tuple[str, ...]], deadline: float) -> tuple[str, ...]:
        """Look until there is nothing left to wait for; what is left when the time is over."""
        while True:
            try:
                left = look()
            except ApiError as error:
                if not error.retryable:
                    raise
                left = (error.what,)
            if not left:
                return ()
            for one in left:
                if one not in self._told:
                    self._told.add(one)
                    self._say(f"waiting: {one}")
            rest = deadline - time.monotonic()
            if rest <= 0:
                return left
            self._pause(min(LOOK_SECONDS, rest))

    def _drained(self) -> tuple[str, ...]:
        """Evict the pods that use the GPUs; what still keeps their claims."""
        claims = claims_in_the_way(self._view, self._node, {one.gpu.pci for one in self._wanted})
        left = []
        for pod in pods_of(claims):
            if not pod.ends:
                refused = self._changes.evict(pod)
                left.append(f"pod {pod} cannot be evicted: {refused}" if refused else f"pod {pod} ends")
        return tuple(left) or tuple(f"claim {claim} still has {', '.join(claim.devices)}" for claim in claims)

    def _published(self) -> tuple[str, ...]:
        """What the slices do not show yet."""
        slices = newest(self._view.slices(), self._node)
        if slices is None:
            return (f"the slices of {self._node} are not complete",)
        return still_missing(self._wanted, node_gpus(slices))


def _left_to_driver(plan: Plan) -> Iterator[str]:
    """Which GPUs stay as they are, since the driver makes their partitions: a sentence for each mode."""
    for mode in dict.fromkeys(gpu.mode for gpu in plan.by_driver):
        gpus = [str(gpu.pci) for gpu in plan.by_driver if gpu.mode == mode]
        are = "is left as it is" if len(gpus) == 1 else "are left as they are"
        yield f"{', '.join(gpus)} {are}, in {mode} mode: {_CHANGE_CONFIG}"


def _plan_text(plan: Plan) -> Text:
    """The whole plan."""
    return Text("\n".join(_lines(plan)))


def _lines(plan: Plan) -> Iterator[str]:
    yield from _left_to_driver(plan)
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
