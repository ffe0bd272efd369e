"""The command ``gpuctl explain``: why pods or claims wait, on any cluster, with any DRA driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from gpuctl.cli.cluster_options import claims, cluster_options, namespace_option, pods
from gpuctl.cli.output import columns, document, emit, exit_amiss, output_option

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gpuctl.cli.cluster import ClusterView
    from gpuctl.explain.findings import Explanation, Kind

_WORDS: Mapping[str, Kind] = {
    **dict.fromkeys(("pod", "pods", "po"), "Pod"),
    **dict.fromkeys(("claim", "claims", "resourceclaim", "resourceclaims"), "ResourceClaim"),
    **dict.fromkeys(("resourceclaim.resource.k8s.io", "resourceclaims.resource.k8s.io"), "ResourceClaim"),
}
_OFFERED = ("pod", "claim")
_VALUES: Mapping[Kind, Callable[[click.Context, str], list[str]]] = {
    "Pod": pods,
    "ResourceClaim": claims,
}

KUBECTL_NAMES: Mapping[Kind, str] = {
    "Pod": "pod",
    "ResourceClaim": "resourceclaim.resource.k8s.io",
}


@dataclass(frozen=True, slots=True)
class Target:
    """An object by its name, or with None all objects of the kind."""

    kind: Kind
    name: str | None


def read_targets(words: Sequence[str]) -> tuple[Target, ...]:
    """The objects that words name, as for kubectl: ``pod x``, ``po x y``, ``pods/x``; raises UsageError."""
    with_slash = [word for word in words if "/" in word]
    if not with_slash:
        kind = _kind(words[0])
        return tuple(Target(kind, name) for name in words[1:]) or (Target(kind, None),)
    if len(with_slash) < len(words):
        raise click.UsageError(
            f"{with_slash[0]!r} contains its kind: write all objects as KIND/NAME, or none"
        )
    found = []
    for word in words:
        before, _, name = word.partition("/")
        if not name or "/" in name:
            raise click.UsageError(f"{word!r} is not KIND/NAME")
        found.append(Target(_kind(before), name))
    return tuple(found)


def _kind(word: str) -> Kind:
    found = _WORDS.get(word.lower())
    if found is None:
        raise click.UsageError(
            f"{word!r} is neither a pod nor a claim: name one as `pod NAME` or `claim NAME`"
        )
    return found


def complete_targets(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The kinds first, then names of that kind; names also after ``KIND/``."""
    before = tuple(ctx.params.get("targets") or ())
    word, slash, rest = incomplete.partition("/")
    if slash:
        kind = _WORDS.get(word)
        return [CompletionItem(f"{word}/{name}") for name in _VALUES[kind](ctx, rest)] if kind else []
    if not before:
        return [CompletionItem(one) for one in _OFFERED if one.startswith(incomplete)]
    first = _WORDS.get(before[0])
    if first is None:
        return []
    return [CompletionItem(name) for name in _VALUES[first](ctx, incomplete) if name not in before[1:]]


@click.command()
@click.argument("targets", nargs=-1, metavar="KIND NAME", shell_complete=complete_targets)
@click.option("--for", "file", type=click.Path(path_type=Path), help="A manifest, not an object.")
@namespace_option
@click.option("-A", "--all-namespaces", is_flag=True, help="All of the kind, in all namespaces.")
@cluster_options
@output_option("wide", "name")
def explain(
    targets: tuple[str, ...],
    file: Path | None,
    namespace: str | None,
    all_namespaces: bool,
    kubeconfig: Path | None,
    context: str | None,
    output: str,
) -> None:
    """Say why pods or claims wait: what rules out each device, and what would let them run.

    KIND NAME is `pod train`, `pod/train` or `claim mine`; several names can follow. Without a name all
    pods that ask for devices, or all claims, are listed in a line each. --for FILE explains the pod that a
    manifest would make: a Pod, Deployment, ReplicaSet, StatefulSet, DaemonSet, Job or CronJob, with the
    claims and templates of the file.

    For a pod that waits it names the smallest sets of pods whose end would make room, for each of three
    policies: only pods of lower priority may go; only pods with the annotation gpu.nvidia.com/movable:
    "true"; any pod.

    Reads only; needs to read slices, classes and claims. Exit codes: 0 when all run, have ended well, have
    their devices or would fit, 3 when one waits, cannot start, has failed or has a sick device, 1 when one is
    not there or the cluster cannot be read, 2 for a wrong command line.
    """
    from gpuctl.cli.cluster import ClusterView, find_namespace
    from gpuctl.explain.findings import ExplanationList

    if bool(targets) == (file is not None):
        raise click.UsageError("name a KIND and a NAME, such as `pod train`, or a manifest with --for")
    asked = read_targets(targets) if targets else ()
    listing = bool(asked) and asked[0].name is None
    if all_namespaces and not listing:
        raise click.UsageError("an object has one namespace: name it with -n, or list a kind with -A")
    view = ClusterView.connect(kubeconfig, context)
    where = None if all_namespaces else find_namespace(namespace, kubeconfig, context)
    if file is not None:
        each = _of_file(view, file, str(where))
    else:
        each = _all(view, asked[0].kind, where) if listing else _each(view, asked, str(where))
    found = tuple(each)
    single = len(found) == 1 and not listing
    data = (
        document("Explanation", found[0]) if single else document("ExplanationList", ExplanationList(found))
    )
    wide = output == "wide"
    emit(
        output,
        data,
        lambda: (
            _table(found, wide=wide, all_namespaces=where is None) if listing else _pictures(found, wide=wide)
        ),
        lambda: (f"{KUBECTL_NAMES[one.object.kind]}/{one.object.name}" for one in found),
    )
    if any(one.is_bad for one in found):
        exit_amiss()


def _of_file(view: ClusterView, file: Path, namespace: str) -> Iterator[Explanation]:
    """The explanation of the pod that a manifest would make."""
    from gpuctl.explain.answer import explain_pod
    from gpuctl.explain.pod.manifest import pod_of_file
    from gpuctl.explain.snapshot import take_snapshot
    from gpuctl.explain.victims import Policy

    pod, snapshot = pod_of_file(file, namespace, take_snapshot(view))
    yield explain_pod(pod, snapshot, tuple(Policy))


def _each(view: ClusterView, targets: Sequence[Target], namespace: str) -> Iterator[Explanation]:
    """The explanation of each object; raises ConfigError if one does not exist."""
    from driver.errors import ConfigError
    from gpuctl.explain.answer import explain_claim, explain_pod
    from gpuctl.explain.snapshot import object_path, take_snapshot
    from gpuctl.explain.victims import Policy

    items = []
    for target in targets:
        item = view.found(object_path(target.kind, namespace, str(target.name)))
        if item is None:
            kind = {"Pod": "pod", "ResourceClaim": "claim"}[target.kind]
            what = f"there is no {kind} {namespace}/{target.name}"
            raise ConfigError(what, "name its namespace with -n")
        items.append((target.kind, item))
    snapshot = take_snapshot(view)
    for kind, item in items:
        pod = kind == "Pod"
        yield explain_pod(item, snapshot, tuple(Policy)) if pod else explain_claim(item, snapshot)


def _all(view: ClusterView, kind: Kind, namespace: str | None) -> Iterator[Explanation]:
    """The explanations of all objects of a kind, pods only if they ask for devices, by namespace and name."""
    from gpuctl.explain.answer import explain_claim, explain_pod
    from gpuctl.explain.snapshot import collection_path, take_snapshot
    from gpuctl.fleet.pods import asks_devices

    path = collection_path(kind, namespace)
    listed = [one for one in view.listed(path) if kind != "Pod" or asks_devices(one)]
    if listed:
        snapshot = take_snapshot(view)
        for one in sorted(listed, key=lambda item: (item["metadata"]["namespace"], item["metadata"]["name"])):
            yield explain_pod(one, snapshot) if kind == "Pod" else explain_claim(one, snapshot)


def _pictures(found: Sequence[Explanation], *, wide: bool) -> RenderableType:
    from rich.console import Group

    from gpuctl.explain.picture import picture

    return Group(*(picture(one, wide=wide) for one in found))


def _table(found: Sequence[Explanation], *, wide: bool, all_namespaces: bool) -> str:
    """A line for each object; ``wide`` adds what would help."""
    if not found:
        return "nothing here asks for devices"
    heads = (
        *(["namespace"] if all_namespaces else []),
        "name",
        "verdict",
        "why",
        *(["what helps"] if wide else []),
    )
    rows = []
    for one in found:
        said = one.summary.removeprefix("it waits").removeprefix("; ").removeprefix(", and ")
        why = "; ".join(filter(None, (said, *(finding.message for finding in one.findings))))
        helps = "; ".join(finding.remedy for finding in one.findings if finding.remedy) or "-"
        place = [one.object.namespace] if all_namespaces else []
        rows.append((*place, one.object.name, one.verdict, why, *([helps] if wide else [])))
    return columns(heads, rows)
