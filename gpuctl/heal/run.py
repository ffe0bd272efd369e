"""Runs a heal: shows the plan, carries it out, or asks the plugin of this node; ends with the exit code."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing

import click
from rich.text import Text

from driver.errors import ApiError, ConfigError
from driver.kube.client import KubeClient
from gpuctl.cli.output import document, emit, say
from gpuctl.heal.node_reader import NodeReader
from gpuctl.heal.plan import HealPlan, is_kept_free, sick_gpu
from gpuctl.heal.steps import HealStep
from gpuctl.repartition import waiting
from gpuctl.repartition.in_the_way import PodInTheWay, evict

KIND = "Heal"
SICK_EXIT_CODE = 3
NO_RESET_EXIT_CODE = 4
NOT_HEALED_EXIT_CODE = 5

WELL_SECONDS = 60.0
"""How long to wait for the taints of a reset GPU to go: the controller's next reading, and more."""


def show(plan: HealPlan, output: str) -> None:
    """Print the plan without doing anything, and end with its exit code."""
    emit(output, document(KIND, plan.as_data()), lambda: Text("\n".join(_lines(plan))))
    code = {None: 0, "reset": SICK_EXIT_CODE}.get(plan.remedy, NO_RESET_EXIT_CODE)
    click.get_current_context().exit(code)


def heal(client: KubeClient, reader: NodeReader, plan: HealPlan, timeout_seconds: float, output: str) -> None:
    """Do what the plan says; ends with exit code 5 if the GPU is not well then.

    Raises ConfigError if the plugin cannot be asked, and ApiError for a failure that does not pass.
    """
    if plan.remedy != "reset":
        show(plan, output)
    if plan.unknown:
        raise ConfigError(f"the plugin of {plan.node} cannot be asked: {plan.unknown}", "nothing was done")
    # Ctrl-C closes the steps, and with them calls the reset off while the plugin still waits.
    with closing(reader.heal(plan.gpu.pci, timeout_seconds)) as steps:
        left = _follow(client, reader, plan, steps, lambda text: say(text, err=output != "table"))
    if output != "table":
        emit(output, document(KIND, {**plan.as_data(), "healed": not left, "left": left}), lambda: "")
    if left:
        say("not healed:", err=True)
        for one in left:
            say(f"  {one}", err=True)
        click.get_current_context().exit(NOT_HEALED_EXIT_CODE)


def heal_here(steps: Iterator[HealStep], output: str) -> None:
    """Print the steps of the plugin of this node as they come; exit code 5 if the last one is a failure.

    As JSON each step is a line of its own, which ``NodeReader`` reads outside of the pod.
    """
    last = ""
    say_once = waiting.SayOnce(say)
    for step in steps:
        last = step.step
        if output == "table":
            for line in _step_lines(step):
                say_once(line)
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


def _follow(
    client: KubeClient,
    reader: NodeReader,
    plan: HealPlan,
    steps: Iterator[HealStep],
    say: Callable[[str], None],
) -> tuple[str, ...]:
    """Follow the plugin's steps to the end, and make room while it waits; why the GPU is not healed."""
    say_once = waiting.SayOnce(say)
    last: HealStep | None = None
    next_look = 0.0
    for last in steps:
        if last.step == "waits":
            say_once("new pods are kept away from the GPU while this waits")
            # The plugin repeats this step more often than the API server should be read.
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + waiting.LOOK_SECONDS
                _make_room(client, reader, plan, last, say_once)
        elif last.step == "resets":
            say("the GPU is not in use any more; resetting it")
    if last is None or last.step != "healed":
        return (last.message if last else "the plugin did not answer",)
    say("the GPU was reset and answers; waiting until its taints are gone")
    left = waiting.wait_for_none(lambda: _still_sick(reader, plan), time.monotonic() + WELL_SECONDS)
    if not left:
        say(f"GPU {plan.gpu.pci} of {plan.node} is healthy: its taints are gone")
    return left


def _make_room(
    client: KubeClient, reader: NodeReader, plan: HealPlan, step: HealStep, say: Callable[[str], None]
) -> None:
    """Evict the pods that have the GPUs; say what is still in the way."""
    try:
        slices = reader.slices()
        # An evicted pod is made anew at once: untainted, the GPU could be given to it again.
        if slices is None or not is_kept_free(slices, plan.addresses):
            say("waiting: the slices do not keep new pods away yet")
            return
        for claim in reader.claims(plan.addresses):
            for pod in claim.pods:
                refused = None if pod.ends else evict(client, pod)
                say(f"waiting: pod {pod} {f'cannot be evicted: {refused}' if refused else 'is ending'}")
            for user in claim.others:
                say(f"waiting: {user} uses claim {claim}, and cannot be evicted")
            if not claim.pods and not claim.others:
                say(f"waiting: claim {claim} still has {', '.join(claim.devices)}")
    except ApiError as error:
        if not error.retryable:
            raise
        say(f"waiting: {error.what}")
        return
    for process in reader.named(step):
        say(f"waiting: {process} uses the GPU")


def _still_sick(reader: NodeReader, plan: HealPlan) -> Iterable[str]:
    """What still says that the GPUs are sick."""
    slices = reader.slices()
    if slices is None:
        return [f"the slices of {plan.node} are not complete"]
    found = [sick_gpu(slices, pci) for pci in plan.addresses]
    return [f"GPU {gpu.pci} has {one.taint}: {one.remedy}" for gpu in found for one in gpu.illnesses]


def _lines(plan: HealPlan) -> Iterator[str]:
    gpu = plan.gpu
    name = f"GPU {gpu.pci} of {plan.node}" + (f" ({gpu.product})" if gpu.product else "")
    if plan.remedy is None:
        yield f"{name} is healthy: none of its devices has a health taint"
        return
    yield f"{name} is not healthy:"
    for one in gpu.illnesses:
        where = "" if one.all_devices else f" (on {', '.join(one.devices)})"
        todo = f": {one.remedy.todo}" if one.remedy.action not in ("reset", "reboot") else ""
        yield f"  {one.taint}{where}: {one.remedy.meaning}{todo}"
    yield ""
    if plan.remedy == "reboot":
        yield "a reset does not help: the machine needs a restart, which you have to do:"
        yield f"  kubectl drain {plan.node} --ignore-daemonsets, restart it, kubectl uncordon {plan.node}"
        return
    if plan.remedy != "reset":
        yield "a reset does not help: the lines above say what does"
        return
    yield from _in_the_way(plan)
    yield ""
    yield from _steps(plan)


def _in_the_way(plan: HealPlan) -> Iterator[str]:
    others = ", ".join(map(str, plan.addresses[1:]))
    if others:
        yield f"it is reset together with {others}, which NVLinks connect to it"
    if not plan.claims and not plan.processes and not plan.unknown:
        yield "nothing is in the way"
        return
    yield "in the way:"
    yield from (claim.line(_pod_words) for claim in plan.claims)
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
        yield f"destroyed by the reset, and not made again by the driver: {', '.join(plan.lost_partitions)}"


def _pod_words(pod: PodInTheWay) -> str:
    made = f"of {pod.controller}" if pod.controller else "without a controller, so nothing recreates it"
    return f"pod {pod} ({made}{', already ending' if pod.ends else ''})"
