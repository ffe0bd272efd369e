"""Runs a heal: shows the plan, or does it, or asks the plugin of this node; ends with the exit code."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import click
from rich.text import Text

from driver.devices.names import checked_node_name
from driver.errors import ApiError, ConfigError
from driver.kube.client import KubeClient
from gpuctl.cli.cluster import ClusterView
from gpuctl.cli.output import document, emit, say
from gpuctl.heal.node_reader import NodeReader
from gpuctl.heal.plan import HealPlan, is_kept_free, sick_gpu
from gpuctl.heal.steps import HealStep
from gpuctl.repartition.in_the_way import NodeChanges, PodInTheWay

KIND = "Heal"
SICK_EXIT_CODE = 3
NO_RESET_EXIT_CODE = 4
NOT_HEALED_EXIT_CODE = 5

_EXIT_CODES = {None: 0, "reset": SICK_EXIT_CODE, "reboot": NO_RESET_EXIT_CODE, "other": NO_RESET_EXIT_CODE}

LOOK_SECONDS = 2.0
"""How often the cluster is read while waiting."""

WELL_SECONDS = 60.0
"""How long to wait for the taints of a reset GPU to go: the controller's next reading, and more."""


def node_reader(client: KubeClient, node: str, kubeconfig: Path | None, context: str | None) -> NodeReader:
    """The reader of a node; raises ConfigError for a name that no node can have."""
    return NodeReader(ClusterView(client), checked_node_name(node), kubeconfig, context)


def show(plan: HealPlan, output: str) -> None:
    """Print the plan without doing anything, and end with its exit code."""
    emit(output, document(KIND, plan.as_data()), lambda: _plan_text(plan))
    click.get_current_context().exit(_EXIT_CODES[plan.remedy])


def heal(client: KubeClient, reader: NodeReader, plan: HealPlan, timeout_seconds: float, output: str) -> None:
    """Do what the plan says; ends with exit code 5 where the GPU is not well then.

    Raises ConfigError where the plugin cannot be asked, and ApiError for one that stays.
    """
    if plan.remedy != "reset":
        show(plan, output)
    if plan.unknown:
        raise ConfigError(f"the plugin of {plan.node} cannot be asked: {plan.unknown}", "nothing was done")
    evict = NodeChanges(client, plan.node).evict

    def tell(text: str) -> None:
        say(text, err=output != "table")

    walk = Walk(reader, evict, tell, lambda seconds: threading.Event().wait(seconds))
    with closing(reader.inside().heal(str(plan.gpu.pci), timeout_seconds)) as steps:
        left = walk.run(plan, steps)  # whoever presses Ctrl-C while it waits calls it off
    if output != "table":
        emit(output, document(KIND, {**plan.as_data(), "healed": not left, "left": list(left)}), lambda: "")
    if left:
        say("not healed:", err=True)
        for one in left:
            say(f"  {one}", err=True)
        click.get_current_context().exit(NOT_HEALED_EXIT_CODE)


def heal_here(steps: Iterator[HealStep], output: str) -> None:
    """Print the steps of the plugin of this node as they come; exit code 5 where the last is a failure.

    As JSON each is a line of its own, for whoever follows them from outside.
    """
    last = ""
    told: set[str] = set()
    for step in steps:
        last = step.step
        if output == "table":
            for line in _step_lines(step):
                if line not in told:
                    told.add(line)
                    say(line)
        else:
            click.echo(json.dumps(step.as_data()))
    if last == "failed":
        click.get_current_context().exit(NOT_HEALED_EXIT_CODE)


def _step_lines(step: HealStep) -> Iterator[str]:
    gpus = ", ".join(map(str, step.gpus))
    match step.step:
        case "looked" if not step.claims and not step.processes:
            yield f"nothing is in the way of a reset of {gpus}"
        case "resets":
            yield f"{gpus}: being reset"
        case "healed":
            yield f"{gpus}: reset"
        case "failed":
            yield f"not reset: {step.message}"
        case _:
            yield from (f"in the way: claim {claim}" for claim in step.claims)
            for one in step.processes:
                pod = f", in the pod with UID {one.pod}" if one.pod else ""
                yield f"in the way: process {one.process_id} ({one.name}){pod}"


class Walk:
    """One walk for one GPU. ``evict(pod)`` answers why a pod cannot end now, None where it ends.

    ``say`` is called with each step once, ``pause`` waits so many seconds. Raises ApiError for one that
    stays.
    """

    def __init__(
        self,
        reader: NodeReader,
        evict: Callable[[PodInTheWay], str | None],
        say: Callable[[str], None],
        pause: Callable[[float], object],
    ) -> None:
        self._reader = reader
        self._evict = evict
        self._say = say
        self._pause = pause
        self._told: set[str] = set()
        self._next_look = 0.0

    def run(self, plan: HealPlan, steps: Iterator[HealStep]) -> tuple[str, ...]:
        """Follow the plugin's steps to the end; why the GPU is not healed, nothing where it is."""
        last: HealStep | None = None
        for step in steps:
            last = step
            if step.step == "waits":
                self._say_once("new pods are kept away from the GPU while this waits")
                self._help(plan, step)
            elif step.step == "resets":
                self._say("nobody uses it any more; it is being reset")
        if last is None or last.step != "healed":
            return (last.message if last else "the plugin said nothing",)
        self._say("it was reset, and answers; waiting until its taints are gone")
        left = self._wait_until_well(plan)
        if not left:
            self._say(f"GPU {plan.gpu.pci} of {plan.node} is well: its taints are gone")
        return left

    def _help(self, plan: HealPlan, step: HealStep) -> None:
        """Evict the pods that have the GPUs, once the scheduler cannot give them to others; say who is
        left."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK_SECONDS
        try:
            slices = self._reader.slices()
            if slices is None or not is_kept_free(slices, plan.addresses):
                self._say_once("waiting: the slices do not keep new pods away yet")
                return
            self._evict_all(plan)
        except ApiError as error:
            if not error.retryable:
                raise
            self._say_once(f"waiting: {error.what}")
            return
        for process in self._reader.named(step):
            self._say_once(f"waiting: {process} uses it")

    def _evict_all(self, plan: HealPlan) -> None:
        claims = self._reader.claims(plan.addresses)
        for claim in claims:
            for pod in claim.pods:
                refused = None if pod.ends else self._evict(pod)
                why = f"cannot be evicted: {refused}" if refused else "ends"
                self._say_once(f"waiting: pod {pod} {why}")
            for user in claim.others:
                self._say_once(f"waiting: {user} uses claim {claim}, which no eviction ends")
            if not claim.pods and not claim.others:
                self._say_once(f"waiting: claim {claim} still has {', '.join(claim.devices)}")

    def _wait_until_well(self, plan: HealPlan) -> tuple[str, ...]:
        """Wait until nothing says that the GPUs are ill; what still does, when that lasts."""
        deadline = time.monotonic() + WELL_SECONDS
        while left := tuple(self._still_ill(plan)):
            rest = deadline - time.monotonic()
            if rest <= 0:
                return left
            self._pause(min(LOOK_SECONDS, rest))
        return ()

    def _still_ill(self, plan: HealPlan) -> Iterable[str]:
        try:
            slices = self._reader.slices()
        except ApiError as error:
            if not error.retryable:
                raise
            return [error.what]
        if slices is None:
            return [f"the slices of {plan.node} are not complete"]
        found = [sick_gpu(slices, pci) for pci in plan.addresses]
        return [f"GPU {gpu.pci} has {one.taint}: {one.meaning}" for gpu in found for one in gpu.illnesses]

    def _say_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._say(text)


def _plan_text(plan: HealPlan) -> Text:
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
