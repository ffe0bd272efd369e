"""Runs a heal: shows the plan, carries it out, or asks the plugin of this node; ends with the exit code."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import click

from driver.errors import ApiError, ConfigError
from driver.kube.client import KubeClient
from gpuctl.cli.output import document, emit, exit_amiss, say
from gpuctl.heal.in_the_way import evict
from gpuctl.heal.node_reader import NodeReader
from gpuctl.heal.plan import Heal, is_kept_free, sick_gpu
from gpuctl.heal.steps import HealStep

LOOK_SECONDS = 2.0
"""How often the cluster is read while waiting."""
WELL_SECONDS = 60.0
"""How long to wait for the taints of a reset GPU to go: the controller's next reading, and more."""


class _SayOnce:
    """Says each line once, however often it is given."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said: set[str] = set()

    def __call__(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._say(line)


def show(plan: Heal, output: str) -> None:
    """Print the plan without doing anything; ends the command if the GPU is sick."""
    emit(output, document("Heal", plan), lambda: "\n".join(plan.lines()))
    if plan.remedy != "none":
        exit_amiss()


def heal(client: KubeClient, reader: NodeReader, plan: Heal, timeout_seconds: float, output: str) -> None:
    """Do what the plan says; ends with exit code 3 if the GPU is not well then.

    Raises ConfigError if the plugin cannot be asked, and ApiError for a failure that does not pass.
    """
    if plan.remedy != "reset":
        show(plan, output)
        return
    if plan.unknown:
        raise ConfigError(f"the plugin of {plan.node} cannot be asked: {plan.unknown}", "nothing was done")
    # Ctrl-C closes the steps, and with them calls the reset off while the plugin still waits.
    with closing(reader.heal(plan.gpu, timeout_seconds)) as steps:
        left = _follow(client, reader, plan, steps, lambda text: say(text, err=output != "table"))
    if output != "table":
        emit(output, document("Heal", replace(plan, healed=not left, left=left)), lambda: "")
    if left:
        say("not healed:", err=True)
        for one in left:
            say(f"  {one}", err=True)
        exit_amiss()


def heal_here(steps: Iterator[HealStep], output: str) -> None:
    """Print the steps of the plugin of this node as they come; exit code 3 if the last one is a failure.

    As JSON each step is a line of its own, which ``NodeReader`` reads outside of the pod.
    """
    last = ""
    say_once = _SayOnce(say)
    for step in steps:
        last = step.step
        if output == "table":
            for line in _step_lines(step):
                say_once(line)
        else:
            click.echo(json.dumps(document("HealStep", step)))
    if last == "failed":
        exit_amiss()


def _step_lines(step: HealStep) -> Iterator[str]:
    gpus = ", ".join(step.gpus)
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
                pod = f", in the pod with UID {one.pod_uid}" if one.pod_uid else ""
                yield f"in the way: process {one.process_id} ({one.name}){pod}"


def _follow(
    client: KubeClient,
    reader: NodeReader,
    plan: Heal,
    steps: Iterator[HealStep],
    say: Callable[[str], None],
) -> tuple[str, ...]:
    """Follow the plugin's steps to the end, and make room while it waits; why the GPU is not healed."""
    say_once = _SayOnce(say)
    last: HealStep | None = None
    next_look = 0.0
    for last in steps:
        if last.step == "waits":
            say_once("new pods are kept away from the GPU while this waits")
            # The plugin repeats this step more often than the API server should be read.
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + LOOK_SECONDS
                _make_room(client, reader, plan, last, say_once)
        elif last.step == "resets":
            say("the GPU is not in use any more; resetting it")
    if last is None or last.step != "healed":
        return ((last and last.message) or "the plugin did not answer",)
    say("the GPU was reset and answers; waiting until its taints are gone")
    deadline = time.monotonic() + WELL_SECONDS
    while (left := _still_sick(reader, plan)) and (rest := deadline - time.monotonic()) > 0:
        threading.Event().wait(min(LOOK_SECONDS, rest))
    if not left:
        say(f"GPU {plan.gpu} of {plan.node} is healthy: its taints are gone")
    return left


def _make_room(
    client: KubeClient, reader: NodeReader, plan: Heal, step: HealStep, say: Callable[[str], None]
) -> None:
    """Evict the pods that have the GPUs; say what is still in the way."""
    try:
        slices = reader.slices()
        # An evicted pod is made anew at once: untainted, the GPU could be given to it again.
        if slices is None or not is_kept_free(slices, plan.reset_together):
            say("waiting: the slices do not keep new pods away yet")
            return
        for claim in reader.claims(plan.reset_together):
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


def _still_sick(reader: NodeReader, plan: Heal) -> tuple[str, ...]:
    """What still says that the GPUs are sick; a failure of the API server that may pass counts, too."""
    try:
        slices = reader.slices()
    except ApiError as error:
        if not error.retryable:
            raise
        return (error.what,)
    if slices is None:
        return (f"the slices of {plan.node} are not complete",)
    gpus = [sick_gpu(slices, pci) for pci in plan.reset_together]
    return tuple(f"GPU {gpu.pci} has {one}: {one.meaning}" for gpu in gpus for one in gpu.taints)
