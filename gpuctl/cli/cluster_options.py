"""The flags by which commands find a cluster and a namespace in it, named as kubectl names them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gpuctl.cli.values import contexts, namespaces

Command = TypeVar("Command", bound=Callable[..., Any])


def cluster_options(command: Command) -> Command:
    """Add ``--kubeconfig`` and ``--context``."""
    context = click.option(
        "--context", metavar="NAME", shell_complete=contexts, help="A context of the kubeconfig."
    )
    kubeconfig = click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path),
        help="The kubeconfig; else $KUBECONFIG, ~/.kube/config, or the service account of the pod.",
    )
    return kubeconfig(context(command))


def namespace_option(command: Command) -> Command:
    """Add ``-n``."""
    return click.option(
        "-n",
        "--namespace",
        metavar="NAME",
        shell_complete=namespaces,
        help="The namespace; else that of the context, or default.",
    )(command)
