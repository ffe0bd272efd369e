"""The command ``gpuctl explain``: why pods, claims or PodGroups wait, on any cluster, with any DRA driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from click.shell_completion import CompletionItem

from gpuctl.cli.cluster_options import claims, cluster_options, namespace_option, pod_groups, pods
from gpuctl.cli.output import as_data, columns, document, emit, output_option

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gpuctl.cli.cluster import ClusterView, Object
    from gpuctl.explain.findings import Explanation


Kind = Literal["pod", "claim", "podgroup"]

_WORDS: Mapping[str, Kind] = {
    **dict.fromkeys(("pod", "pods", "po"), "pod"),
    **dict.fromkeys(("claim", "claims", "resourceclaim", "resourceclaims"), "claim"),
    **dict.fromkeys(("resourceclaim.resource.k8s.io", "resourceclaims.resource.k8s.io"), "claim"),
    **dict.fromkeys(("podgroup", "podgroups"), "podgroup"),
    **dict.fromkeys(("podgroup.scheduling.k8s.io", "podgroups.scheduling.k8s.io"), "podgroup"),
}
_OFFERED = ("pod", "claim", "podgroup")
_VALUES: Mapping[Kind, Callable[[click.Context, str], list[str]]] = {
    "pod": pods,
    "claim": claims,
    "podgroup": pod_groups,
}

KUBECTL_NAMES = {
    "pod": "pod",
    "claim": "resourceclaim.resource.k8s.io",
    "podgroup": "podgroup.scheduling.k8s.io",
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
            f"{word!r} is neither a pod nor a claim nor a podgroup: name one as `pod NAME` or `claim NAME`"
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
@click.argument("targets", nargs=-1, required=True, metavar="KIND NAME", shell_complete=complete_targets)
@namespace_option
@click.option("-A", "--all-namespaces", is_flag=True, help="All of the kind, in all namespaces.")
@cluster_options
@output_option("wide", "name")
def explain(
    targets: tuple[str, ...],
    namespace: str | None,
    all_namespaces: bool,
    kubeconfig: Path | None,
    context: str | None,
    output: str,
) -> None:
    """Say why pods or claims wait: what rules out each device, and what would let them run.

    KIND NAME is `pod train`, `pod/train`, `claim mine`, or `podgroup gang`; several names can follow. Without
    a name all pods that ask for devices, or all objects of the kind, are listed in a line each.

    Reads only; needs to read slices, classes and claims. Exit codes: 0 when all run, have ended well, have
    their devices or would fit, 3 when one waits, cannot start, has failed or has a sick device, 1 when one is
    not there or the cluster cannot be read, 2 for a wrong command line.
    """
    from gpuctl.cli.cluster import ClusterView, find_namespace
    from gpuctl.explain.findings import BAD
    from gpuctl.explain.sick import SICK

    asked = read_targets(targets)
    listing = asked[0].name is None
    if all_namespaces and not listing:
        raise click.UsageError("an object has one namespace: name it with -n, or list a kind with -A")
    view = ClusterView.connect(kubeconfig, context)
    where = None if all_namespaces else find_namespace(namespace, kubeconfig, context)
    if listing:
        found = tuple(_all(view, asked[0].kind, where))
    else:
        found = tuple(_one(view, one, str(where)) for one in asked)
    documents = [document("Explanation", _data(one)) for one in found]
    data = (
        documents[0] if len(found) == 1 and not listing else document("ExplanationList", {"items": documents})
    )
    wide = output == "wide"
    emit(
        output,
        data,
        lambda: (
            _table(found, wide=wide, all_namespaces=where is None) if listing else _pictures(found, wide=wide)
        ),
        lambda: (f"{KUBECTL_NAMES[one.kind]}/{one.name}" for one in found),
    )
    sick = any(finding.kind == SICK for one in found for finding in one.findings)
    if sick or any(one.verdict in BAD for one in found):
        click.get_current_context().exit(3)


def _one(view: ClusterView, target: Target, namespace: str) -> Explanation:
    """The explanation of one object; raises ConfigError if it does not exist."""
    from driver.errors import ConfigError
    from gpuctl.explain.answer import explain_claim, explain_group, explain_pod
    from gpuctl.explain.room import Rooms, read_occupants
    from gpuctl.explain.snapshot import claim_of, events_of, group_of, pod_of, take_snapshot
    from kubernetes_rules.extended_resources import asked_resources

    name = str(target.name)
    found = {"pod": pod_of, "claim": claim_of, "podgroup": group_of}[target.kind](view, namespace, name)
    if found is None:
        raise ConfigError(f"there is no {target.kind} {namespace}/{name}", "name its namespace with -n")
    if target.kind == "claim":
        return explain_claim(found, take_snapshot(view, namespace))
    if target.kind == "podgroup":
        snapshot = take_snapshot(view, namespace)
        return explain_group(found, snapshot, Rooms(snapshot, lambda: read_occupants(view)))
    events = events_of(view, namespace, found["metadata"]["uid"])
    snapshot = take_snapshot(view, namespace, asked_resources(found))
    templates = _templates(view, found, {})
    told = explain_pod(found, snapshot, templates, events)
    return Rooms(snapshot, lambda: read_occupants(view)).added_to(told, found, templates, events)


def _all(view: ClusterView, kind: Kind, namespace: str | None) -> Iterator[Explanation]:
    """The explanations of all objects of a kind, pods only if they ask for devices, by namespace and name."""
    from gpuctl.explain.answer import explain_claim, explain_group, explain_pod
    from gpuctl.explain.room import Rooms, read_occupants
    from gpuctl.explain.snapshot import events_by_object, list_of, quotas_of, take_snapshot
    from kubernetes_rules.extended_resources import asked_resources

    listed = list_of(view, kind, namespace)
    resources: set[str] = set()
    if kind == "pod":
        listed = [pod for pod in listed if pod["spec"].get("resourceClaims") or asked_resources(pod)]
        resources.update(name for pod in listed for name in asked_resources(pod))
    if not listed:
        return
    by_namespace: dict[str, list[Object]] = {}
    for one in listed:
        by_namespace.setdefault(one["metadata"]["namespace"], []).append(one)
    # Everything but quotas is the same for all namespaces, and is read only once.
    first, *_ = by_namespace
    snapshot = take_snapshot(view, first, resources)
    events = events_by_object(view, namespace) if kind == "pod" else {}
    templates: dict[tuple[str, str], Object | None] = {}
    rooms = Rooms(snapshot, lambda: read_occupants(view))
    for place, members in sorted(by_namespace.items()):
        here = snapshot if place == first else replace(snapshot, quotas=quotas_of(view, place))
        for one in sorted(members, key=lambda item: str(item["metadata"]["name"])):
            if kind == "claim":
                yield explain_claim(one, here)
            elif kind == "podgroup":
                yield explain_group(one, here, rooms)
            else:
                about = events.get(one["metadata"]["uid"], [])
                own = _templates(view, one, templates)
                yield rooms.added_to(explain_pod(one, here, own, about), one, own, about)


def _templates(
    view: ClusterView, pod: Object, known: dict[tuple[str, str], Object | None]
) -> dict[str, Object | None]:
    """The claim templates that a pod names; each is read once."""
    from gpuctl.explain.snapshot import template_of

    namespace = pod["metadata"]["namespace"]
    entries = pod["spec"].get("resourceClaims") or ()
    names = sorted({entry.get("resourceClaimTemplateName") for entry in entries} - {None})
    for name in names:
        if (namespace, name) not in known:
            known[namespace, name] = template_of(view, namespace, name)
    return {name: known[namespace, name] for name in names}


def _data(found: Explanation) -> dict[str, Any]:
    """The explanation for scripts; the object has a field of its own, since the document has a kind, too."""
    data: dict[str, Any] = as_data(found)
    kind = {"pod": "Pod", "claim": "ResourceClaim", "podgroup": "PodGroup"}[data.pop("kind")]
    return {"object": {"kind": kind, "namespace": data.pop("namespace"), "name": data.pop("name")}, **data}


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
        why = "; ".join(finding.message for finding in one.findings) or one.summary
        helps = "; ".join(finding.remedy for finding in one.findings if finding.remedy) or "-"
        place = [one.namespace] if all_namespaces else []
        rows.append((*place, one.name, one.verdict, why, *([helps] if wide else [])))
    return columns(heads, rows)
