"""The flags by which commands find a cluster and a namespace in it, named as kubectl names them.

Completion offers names of objects in that cluster as values of arguments and flags. A shell that completes
cannot show errors, so nothing is offered if the cluster cannot be asked. What talks to the cluster is
imported inside the functions: to complete the name of a command must not take that long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

_MOST = "500"
_TIMEOUT_SECONDS = 2.0
"""Somebody waits for the answer to a TAB."""
# The API server then leaves spec and status out of the objects. An answer in another form is taken as well.
_NAMES_ALONE = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


def cluster_options(command: Command) -> Command:
    """Add ``--kubeconfig`` and ``--context``."""
    context = click.option(
        "--context", metavar="NAME", shell_complete=contexts, help="The context of the kubeconfig to use."
    )
    kubeconfig = click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path),
        help="The kubeconfig; default: $KUBECONFIG, ~/.kube/config, or the service account of the pod.",
    )
    return kubeconfig(context(command))


def namespace_option(command: Command) -> Command:
    """Add ``-n``."""
    return click.option(
        "-n",
        "--namespace",
        metavar="NAME",
        shell_complete=namespaces,
        help="The namespace; default: that of the context, or `default`.",
    )(command)


def contexts(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The contexts of the kubeconfig."""
    from driver.errors import DriverError
    from gpuctl.cli.cluster import find_kubeconfig

    found = find_kubeconfig(ctx.params.get("kubeconfig"), None)
    if found is None:
        return []
    from driver.kube.kubeconfig import contexts_of

    try:
        return matching(contexts_of(found), incomplete)
    except DriverError:
        return []


def namespaces(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The namespaces of the cluster."""
    return _named(ctx, "/api/v1/namespaces", incomplete)


def nodes(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The nodes of the cluster."""
    return _named(ctx, "/api/v1/nodes", incomplete)


def device_classes(ctx: click.Context, incomplete: str) -> list[str]:
    """The DeviceClasses of the cluster."""
    return _named(ctx, "/apis/resource.k8s.io/v1/deviceclasses", incomplete)


def pods(ctx: click.Context, incomplete: str) -> list[str]:
    """The pods of the namespace that the flags name."""
    return _named(ctx, "/api/v1/namespaces/{namespace}/pods", incomplete)


def claims(ctx: click.Context, incomplete: str) -> list[str]:
    """The ResourceClaims of the namespace that the flags name."""
    path = "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    return _named(ctx, path, incomplete)


def _named(ctx: click.Context, path: str, incomplete: str) -> list[str]:
    from urllib.parse import quote

    from driver.errors import DriverError
    from gpuctl.cli.cluster import find_namespace

    kubeconfig, context = ctx.params.get("kubeconfig"), ctx.params.get("context")
    try:
        if "{namespace}" in path:
            namespace = find_namespace(ctx.params.get("namespace"), kubeconfig, context)
            path = path.format(namespace=quote(namespace, safe=""))
        return matching(_list_names(kubeconfig, context, path), incomplete)
    except (DriverError, OSError, ValueError):
        return []


def matching(names: Iterable[Any], incomplete: str) -> list[str]:
    """The names that begin with ``incomplete``, sorted."""
    return sorted(str(name) for name in names if str(name).startswith(incomplete))


def _list_names(kubeconfig: Path | None, context: str | None, path: str) -> list[str]:
    """The first 500 names of a collection; none if the server refuses.

    Raises DriverError, OSError or ValueError if the server cannot be asked.
    """
    from gpuctl.cli.cluster import connect_client

    client = connect_client(kubeconfig, context)
    answer = client.get(path, {"limit": _MOST}, timeout_seconds=_TIMEOUT_SECONDS, accept=_NAMES_ALONE)
    return [str(one["metadata"]["name"]) for one in answer.get("items") or ()]
