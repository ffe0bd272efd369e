"""Puts a report together: of a cluster and one node of it, or of the node that this runs on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from driver.errors import ConfigError
from driver.kube.client import KubeClient
from gpuctl.cli.output import document
from gpuctl.doctor.check import Result
from gpuctl.doctor.inside.places import Places
from gpuctl.doctor.outside.seen import ClusterSeen
from gpuctl.doctor.report import DoctorReport, look_locally, picture
from gpuctl.gather.archive import Member, as_json, read_archive, safe_part, text_member

_INSIDE_WORDS = ("gather", "--local", "--to", "-")
README = """\
A report about the GPU driver (gpu.nvidia.com) of a Kubernetes cluster, made by `gpuctl gather`.

doctor.txt, doctor.json   what `gpuctl doctor` found
versions.json             of Kubernetes, its feature gates, and gpuctl
objects/                  the driver's own objects: slices, classes, workloads, policies, events, the node
                          configuration; claims that have its devices or ask for them; nodes with GPUs
logs/                     the last lines of the logs of the driver's pods
nodes/NODE/               the files of a node: journal, CDI specs, records of sharing, ledger of memory
                          limits, flags, metrics
left-out.txt              what was left out, if the report became too large

It never contains Secrets, tokens, kubeconfigs, private keys, other ConfigMaps, annotations, the environment
of processes, or claims of other drivers. (masked) replaces a value: variables and flags that the driver does
not know, labels of users, configurations of other drivers and those with mistakes, and whatever looks like a
token, a password or a key. It contains names of namespaces, claims, pods, nodes and images: check what it
contains before you share it.
"""


def cluster_report(
    client: KubeClient, node: str | None, kubeconfig: Path | None, context: str | None
) -> Iterator[Member]:
    """The members of a report of a cluster, with the files of ``node`` if one is named.

    Raises Unreachable, Unauthorized, and ConfigError for a node that does not exist.
    """
    from gpuctl.doctor.outside.checks import check_cluster
    from gpuctl.doctor.outside.reading import look_at_cluster
    from gpuctl.gather.cluster_files import cluster_members, configuration_members, log_members

    seen = look_at_cluster(client, node)
    yield Member("README.txt", README.encode())
    yield from _doctor_members(check_cluster(seen))
    yield from cluster_members(seen)
    yield from configuration_members(client, seen.namespaces)
    if node is not None:
        yield from _node_in_pod(seen, node, kubeconfig, context)
    yield from log_members(client, seen)


def local_report(places: Places, command_lines: Sequence[Sequence[str]]) -> Iterator[Member]:
    """The members of a report of this node."""
    from gpuctl.gather.node_files import node_members

    yield Member("README.txt", README.encode())
    yield from _doctor_members(look_locally(places, "node"))
    yield from node_members(places, command_lines)


def _doctor_members(results: Sequence[Result]) -> Iterator[Member]:
    """What the doctor found, for people and for programs."""
    yield text_member("doctor.txt", f"{picture(results, wide=True)}\n")
    yield text_member("doctor.json", as_json(document("DoctorReport", DoctorReport(tuple(results)))).decode())


def _node_in_pod(
    seen: ClusterSeen, node: str, kubeconfig: Path | None, context: str | None
) -> Iterator[Member]:
    """The report of a node, made by gpuctl in the plugin's pod there, or why there is none."""
    from gpuctl.cli.unread import Unread
    from gpuctl.doctor.pod_exec import plugin_pod, run_in_pod

    folder = f"nodes/{safe_part(node)}"
    target = plugin_pod(seen.pods, node)
    if isinstance(target, Unread):
        yield Member(f"{folder}/not-read.txt", f"{target.why}\n".encode())
        return
    try:
        members = read_archive(run_in_pod(target, _INSIDE_WORDS, kubeconfig, context))
    except ConfigError as error:
        yield text_member(f"{folder}/not-read.txt", f"{error.what}\n")
        return
    for one in members:
        # The node has masked them already. They are masked again here, since the image may be older.
        if one.name != "README.txt":
            yield text_member(f"{folder}/{one.name}", one.data.decode(errors="replace"))
