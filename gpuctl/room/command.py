"""The command ``gpuctl room``: who would have to go for a pod, and what moves would free whole GPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from gpuctl.cli.cluster_options import cluster_options, device_classes, namespace_option, nodes, pods
from gpuctl.cli.output import as_data, document, emit, output_option, say

if TYPE_CHECKING:
    from gpuctl.room.rooms import RoomAnswer

_NOT_DONE_EXIT_CODE = 3


def _complete_pod(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in pods(ctx, incomplete)]


def _complete_target(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    if not ctx.params.get("defragment"):
        return [CompletionItem(incomplete, type="file")]
    return [CompletionItem(name) for name in device_classes(ctx, incomplete)]


@click.command()
@click.argument("pod", required=False, shell_complete=_complete_pod)
@click.option(
    "--for",
    "target",
    metavar="FILE|NAME",
    shell_complete=_complete_target,
    help="A manifest, not a pod; with --defragment a DeviceClass or MIG profile, not whole GPUs.",
)
@click.option("--defragment", is_flag=True, help="Show which moves of pods would free whole GPUs.")
@click.option("--node", shell_complete=nodes, help="With --defragment: move pods from this node only.")
@click.option("--yes", is_flag=True, help="With --defragment: do it, one move at a time.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="With --yes: how long to wait for each new pod.",
)
@namespace_option
@cluster_options
@output_option("wide")
def room(
    pod: str | None,
    target: str | None,
    defragment: bool,
    node: str | None,
    yes: bool,
    timeout: float,
    namespace: str | None,
    kubeconfig: Path | None,
    context: str | None,
    output: str,
) -> None:
    """Say which pods would have to end so that POD gets its devices: the smallest sets, on each node.

    There is an answer for each of three policies: only pods of lower priority may go; only pods with the
    annotation gpu.nvidia.com/movable: "true"; any pod. --for FILE asks for the pod that a manifest would
    make. It works with the devices of any DRA driver, and only reads.

    --defragment shows which moves would free whole GPUs, and where the moved pods would fit. A pod is moved
    only if it has the annotation and a controller that makes it again. With --yes they are evicted one at a
    time (PodDisruptionBudgets are kept). After each move it looks where the scheduler has put the new pod.

    Exit codes: 0 when the pod needs no room, or the moves are shown, or with --yes when nothing is left to
    gain; 3 when the pod waits, or a move was refused or did not help; 1 when the pod is not there or the
    cluster cannot be read; 2 for a wrong command line.
    """
    if defragment:
        if pod is not None:
            raise click.UsageError("--defragment is about all pods: leave POD out")
        _defragment(kubeconfig, context, target, node, output, timeout if yes else None)
        return
    if node is not None or yes:
        raise click.UsageError("--node and --yes need --defragment")
    if (pod is None) == (target is None):
        raise click.UsageError("name a pod, or a manifest with --for, or use --defragment")
    answer = _answer(kubeconfig, context, namespace, pod, target)
    _show_room(answer, output)


def _show_room(answer: RoomAnswer, output: str) -> None:
    from gpuctl.room.picture import room_text
    from gpuctl.room.rooms import NEEDS_NOTHING

    emit(output, document("Room", answer), lambda: room_text(answer, wide=output == "wide"))
    if answer.verdict not in NEEDS_NOTHING:
        click.get_current_context().exit(_NOT_DONE_EXIT_CODE)


def _answer(
    kubeconfig: Path | None, context: str | None, namespace: str | None, pod: str | None, file: str | None
) -> RoomAnswer:
    from gpuctl.cli.cluster import ClusterView, find_namespace
    from gpuctl.explain.room import cluster_of, read_occupants
    from gpuctl.explain.snapshot import take_snapshot
    from gpuctl.room.rooms import answer, selectors_in_time
    from gpuctl.room.wanted import pod_in_cluster, pod_of_file

    view = ClusterView.connect(kubeconfig, context)
    where = find_namespace(namespace, kubeconfig, context)
    if file is not None:
        wanted = pod_of_file(view, Path(file), where)
    else:
        wanted = pod_in_cluster(view, where, str(pod))
    snapshot = take_snapshot(view, wanted.namespace)
    occupants = read_occupants(view)
    # What a manifest contains counts in place of what the cluster has under the same name.
    own = {(one["metadata"]["namespace"], one["metadata"]["name"]) for one in wanted.claims}
    others = (
        one for one in snapshot.claims if (one["metadata"]["namespace"], one["metadata"]["name"]) not in own
    )
    snapshot = replace(snapshot, claims=(*others, *wanted.claims), pods=occupants.pods)
    unread = tuple(dict.fromkeys((*snapshot.unread, *occupants.unread)))
    with selectors_in_time():
        return answer(wanted, snapshot, cluster_of(snapshot, occupants), occupants.budgets, unread)


def _defragment(
    kubeconfig: Path | None,
    context: str | None,
    target: str | None,
    node: str | None,
    output: str,
    timeout_seconds: float | None,
) -> None:
    from gpuctl.cli.cluster import ClusterView, connect_client
    from gpuctl.room.moves import Look, carry_out
    from gpuctl.room.picture import plan_text

    client = connect_client(kubeconfig, context)
    look = Look(ClusterView(client), target, node)
    if timeout_seconds is None:
        plan, unread = look.plan()
        data = document("Defragmentation", {**as_data(plan), "unread": unread})
        emit(output, data, lambda: plan_text(plan, unread, wide=output == "wide"))
        return
    done = carry_out(client, look, timeout_seconds, lambda line: say(line, err=output in ("json", "yaml")))
    if output in ("json", "yaml"):
        emit(output, document("Defragmentation", done), lambda: "")
    else:
        say(f"{done.summary}; stopped: {done.why}")
    if not done.complete:
        click.get_current_context().exit(_NOT_DONE_EXIT_CODE)
