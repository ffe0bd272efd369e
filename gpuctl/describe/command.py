"""The command ``gpuctl describe``: all about one node, one GPU or one claim."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from click.shell_completion import CompletionItem

from gpuctl.cli.cluster_options import claims, cluster_options, matching, namespace_option, nodes
from gpuctl.cli.output import document, emit, output_option

if TYPE_CHECKING:
    from gpuctl.cli.cluster import ClusterView
    from gpuctl.describe.sections import Section

KINDS = ("node", "gpu", "claim")


class _KindChoice(click.Choice[str]):
    """One of the kinds; for pods there is another command."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in ("pod", "pods"):
            self.fail(
                "`gpuctl explain pod NAME` tells about pods: why one waits, or where it runs", param, ctx
            )
        return super().convert(value, param, ctx)


def _names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The nodes, for a GPU with a slash behind each; for a claim those of the namespace."""
    kind = ctx.params.get("kind")
    if kind == "claim":
        return [CompletionItem(name) for name in claims(ctx, incomplete)]
    if kind == "gpu":
        found = [f"{name}/" for name in nodes(ctx, param, "")]
        return [CompletionItem(name) for name in matching(found, incomplete)]
    return [CompletionItem(name) for name in nodes(ctx, param, incomplete)]


@click.command()
@click.argument("kind", type=_KindChoice(KINDS))
@click.argument("name", shell_complete=_names)
@namespace_option
@cluster_options
@output_option()
def describe(
    kind: Literal["node", "gpu", "claim"],
    name: str,
    namespace: str | None,
    kubeconfig: Path | None,
    context: str | None,
    output: str,
) -> None:
    """Show all about a node, a GPU or a claim: forms, holders, taints and remedies, topology, events.

    A GPU is named as NODE/INDEX, NODE/ADDRESS, by its UUID, or by an address that only one node has.

    Exit codes: 0, 1 for an object that does not exist or a cluster that cannot be reached, 2 for a wrong
    command line.
    """
    from gpuctl.cli.cluster import ClusterView
    from gpuctl.describe.sections import Description

    view = ClusterView.connect(kubeconfig, context)
    if kind == "claim":
        from gpuctl.cli.cluster import find_namespace

        where = find_namespace(namespace, kubeconfig, context)
        name, sections = f"{where}/{name}", _claim(view, where, name)
    else:
        name, sections = (_node if kind == "node" else _gpu)(view, name)
    emit(
        output,
        document("Description", Description(kind, name, sections)),
        lambda: "\n\n".join(one.text() for one in sections),
    )


def _node(view: ClusterView, name: str) -> tuple[str, Sequence[Section]]:
    from gpuctl.describe.node import node_sections
    from gpuctl.describe.reading import node_events, read_node

    found = read_node(view, name)
    matching_nodes = view.listed_if_readable("/api/v1/nodes", fieldSelector=f"metadata.name={name}")
    node = matching_nodes[0] if matching_nodes else None
    pods = view.listed_if_readable("/api/v1/pods", fieldSelector=f"spec.nodeName={name}")
    return name, node_sections(found, node, pods, node_events(view, name))


def _gpu(view: ClusterView, name: str) -> tuple[str, Sequence[Section]]:
    from gpuctl.describe.gpu import gpu_sections
    from gpuctl.describe.reading import find_gpu, node_events

    gpu, gpus = find_gpu(view, name)
    return f"{gpu.node}/{gpu.label}", gpu_sections(gpu, gpus, node_events(view, gpu.node))


def _claim(view: ClusterView, namespace: str, name: str) -> Sequence[Section]:
    from driver.errors import ConfigError
    from gpuctl.describe.claim import claim_sections
    from gpuctl.describe.reading import claim_events, nodes_of
    from gpuctl.explain.snapshot import object_path

    claim = view.found(object_path("ResourceClaim", namespace, name))
    if claim is None:
        raise ConfigError(f"there is no claim {namespace}/{name}", "name its namespace with -n")
    return claim_sections(claim, nodes_of(view, claim), claim_events(view, claim))
