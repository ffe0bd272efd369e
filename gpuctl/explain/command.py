"""The command ``gpuctl explain``: why a pod or a claim waits, on any cluster and with any DRA driver."""

from __future__ import annotations

from pathlib import Path

import click

from driver.errors import ConfigError
from gpuctl.cli.cluster_view import ClusterView, kubeconfig_option
from gpuctl.cli.output import emit, output_option
from gpuctl.explain.answer import explain_claim, explain_pod
from gpuctl.explain.findings import BAD
from gpuctl.explain.picture import picture
from gpuctl.explain.snapshot import claim_of, events_of, pod_of, take_snapshot, template_of
from kubernetes_rules.extended_resources import asked_resources

WAITS_EXIT_CODE = 3


@click.command()
@click.argument("kind", type=click.Choice(("pod", "claim")))
@click.argument("name")
@click.option("-n", "--namespace", default="default", show_default=True, help="Its namespace.")
@kubeconfig_option
@output_option
def explain(kind: str, name: str, namespace: str, kubeconfig: Path | None, output: str) -> None:
    """Say why a pod or a claim waits: what rules out each device, and what would let it run.

    Reads only; needs to read slices, classes and claims. Exit codes: 0 when it runs, has ended well, has its
    devices or would fit, 3 when it waits, cannot be prepared or has failed, 1 when it is not there or the
    cluster cannot be read, 2 for a wrong command line.
    """
    view = ClusterView.connect(kubeconfig)
    if kind == "pod":
        pod = pod_of(view, namespace, name)
        if pod is None:
            raise ConfigError(f"there is no pod {namespace}/{name}", "name its namespace with -n")
        entries = pod["spec"].get("resourceClaims") or ()
        names = {entry.get("resourceClaimTemplateName") for entry in entries} - {None}
        templates = {one: template_of(view, namespace, one) for one in sorted(names)}
        events = events_of(view, namespace, pod["metadata"]["uid"])
        snapshot = take_snapshot(view, namespace, asked_resources(pod))
        found = explain_pod(pod, snapshot, templates, events)
    else:
        claim = claim_of(view, namespace, name)
        if claim is None:
            raise ConfigError(f"there is no claim {namespace}/{name}", "name its namespace with -n")
        found = explain_claim(claim, take_snapshot(view, namespace))
    emit(output, found.as_data(), lambda: picture(found))
    if found.verdict in BAD:
        click.get_current_context().exit(WAITS_EXIT_CODE)
