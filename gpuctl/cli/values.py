"""The values that completion offers for arguments and flags: names that are in the cluster at this moment.

A shell that completes has no place for errors, so that a cluster that cannot be asked offers nothing. What
talks to it is imported when it is needed: completing the name of a command must not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click


def contexts(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The contexts of the kubeconfig."""
    from driver.errors import DriverError
    from gpuctl.cli.context import find_kubeconfig

    try:
        found = find_kubeconfig(ctx.params.get("kubeconfig"), None)
        content: Any = found.read() if found else {}
    except DriverError:
        return []
    listed = content.get("contexts", ()) if isinstance(content, dict) else ()
    return matching((one["name"] for one in listed), incomplete)


def namespaces(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The namespaces of the cluster."""
    return _named(ctx, "/api/v1/namespaces", incomplete)


def nodes(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The nodes of the cluster."""
    return _named(ctx, "/api/v1/nodes", incomplete)


def pods(ctx: click.Context, incomplete: str) -> list[str]:
    """The pods of the namespace that the flags say."""
    return _named(ctx, "/api/v1/namespaces/{namespace}/pods", incomplete)


def claims(ctx: click.Context, incomplete: str) -> list[str]:
    """The ResourceClaims of the namespace that the flags say."""
    path = "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    return _named(ctx, path, incomplete)


def _named(ctx: click.Context, path: str, incomplete: str) -> list[str]:
    from urllib.parse import quote

    from driver.errors import DriverError
    from gpuctl.cli.context import find_namespace
    from gpuctl.cli.names import list_names

    kubeconfig, context = ctx.params.get("kubeconfig"), ctx.params.get("context")
    try:
        if "{namespace}" in path:
            namespace = find_namespace(ctx.params.get("namespace"), kubeconfig, context)
            path = path.format(namespace=quote(namespace, safe=""))
        return matching(list_names(kubeconfig, context, path), incomplete)
    except (DriverError, OSError, ValueError):
        return []


def matching(names: Iterable[Any], incomplete: str) -> list[str]:
    """Those that begin so, sorted."""
    return sorted(str(name) for name in names if str(name).startswith(incomplete))
