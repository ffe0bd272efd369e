"""What the commands of the driver's processes have in common: flags that say the same, errors in one line."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from driver.errors import DriverError
from driver.process.log import LEVELS

F = TypeVar("F", bound=Callable[..., object])


def command(name: str) -> Callable[[Callable[..., object]], click.Command]:
    """Make a function the command of this name, with ``--version`` and environment variables for all flags.

    A DriverError ends the process with its words in one line.
    """
    settings = {"auto_envvar_prefix": "GPU_DRA", "show_default": True, "max_content_width": 100}
    version = click.version_option(
        package_name="gpu-dra", allow_from_autoenv=False, message=f"{name} %(version)s"
    )

    def made(function: Callable[..., object]) -> click.Command:
        @wraps(function)
        def run(*arguments: object, **flags: object) -> object:
            try:
                return function(*arguments, **flags)
            except DriverError as error:
                raise click.ClickException(" ".join(str(error).split())) from error

        return click.command(name=name, context_settings=settings)(version(run))

    return made


def _flag(name: str, text: str, **more: Any) -> Callable[[F], F]:
    return click.option(name, show_envvar=True, help=text, **more)


kubeconfig = _flag(
    "--kubeconfig",
    "The kubeconfig; without it, the pod's service account is used.",
    type=click.Path(path_type=Path),
)
nvml = _flag(
    "--nvml",
    "real, or fake:MACHINE[@STATE] for a node without GPUs; MACHINE is a name or a file.",
    default="real",
)
namespace = _flag("--namespace", "The namespace of the Lease of the replicas.", default="gpu-dra")
identity = _flag(
    "--identity",
    "The name of this replica in the Lease and in events; no two replicas may have the same.",
    default=socket.gethostname,
    show_default="the host name",
)
metrics_addr = _flag(
    "--metrics-addr",
    "Address (host:port) to serve Prometheus metrics on; empty turns them off.",
    default="",
)
health_addr = _flag(
    "--health-addr",
    "Address (host:port) for the kubelet's probes /startupz, /livez and /readyz; empty turns them off.",
    default="",
)
log_level = _flag("--log-level", "The log level.", type=click.Choice(LEVELS), default="info")
