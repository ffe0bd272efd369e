"""The controller's command: parses the flags and runs what controller/wiring.py connects."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click

from controller.process_inputs import Given
from controller.wiring import NAME, Options, needed_capabilities, start
from driver.errors import DriverError
from driver.process.log import Level, configure
from driver.process.privileges import keep_only
from driver.roots.flag import AUTO, DRIVER_ROOT_HELP, HOST_ROOT_HELP


@click.command(
    name=NAME,
    context_settings={"auto_envvar_prefix": "GPU_DRA", "show_default": True, "max_content_width": 100},
)
@click.version_option(package_name="gpu-dra", allow_from_autoenv=False, message=f"{NAME} %(version)s")
@click.option(
    "--node-name", required=True, show_envvar=True, help="The name of the Node whose GPUs are published."
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    show_envvar=True,
    help="The kubeconfig; without it, the pod's service account is used.",
)
@click.option(
    "--nvml",
    default="real",
    show_envvar=True,
    help="real, or fake:MACHINE[@STATE] for a node without GPUs; MACHINE is a name or a file.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    show_envvar=True,
    help="The node configuration, read again when it changes; without it, every GPU is offered whole.",
)
@click.option("--driver-root", default=AUTO, show_envvar=True, help=DRIVER_ROOT_HELP)
@click.option(
    "--host-root", type=click.Path(path_type=Path), default="/", show_envvar=True, help=HOST_ROOT_HELP
)
@click.option(
    "--sysfs-root",
    type=click.Path(path_type=Path),
    default="/sys",
    show_envvar=True,
    help="Where sysfs is mounted.",
)
@click.option(
    "--plugin-data-dir",
    type=click.Path(path_type=Path),
    default="/var/lib/kubelet/plugins/gpu.nvidia.com",
    show_envvar=True,
    help="The folder with the kubelet plugin's sockets; nothing is published while no plugin serves there.",
)
@click.option(
    "--device-plugin",
    type=click.Choice(("taint", "withhold")),
    default="taint",
    show_envvar=True,
    help="While a device plugin offers GPUs on the same node: taint all devices, or withhold (publish none).",
)
@click.option(
    "--metrics-addr",
    default="",
    show_envvar=True,
    help="Address (host:port) to serve Prometheus metrics on; empty turns them off.",
)
@click.option(
    "--health-addr",
    default="",
    show_envvar=True,
    help="Address (host:port) for the kubelet's probes /startupz, /livez and /readyz; empty turns them off.",
)
@click.option(
    "--log-level",
    type=click.Choice(get_args(Level)),
    default="info",
    show_envvar=True,
    help="The log level.",
)
@click.pass_obj
def main(given: Given | None, /, log_level: Level, **flags: object) -> None:
    """Publish the GPUs of one node as ResourceSlices while its kubelet plugin serves.

    Every flag can be given as the environment variable that is shown with it.
    """
    from driver.process.service import Service

    configure(log_level)
    given = given or Given()
    service = Service(given.hung_seconds)
    try:
        options = Options(**flags)  # type: ignore[arg-type] # click's names and types are those of Options
        keep_only(needed_capabilities(options))
        start(service, options, given)
        service.run()
    except DriverError as error:
        raise click.ClickException(" ".join(str(error).split())) from error  # always one line
    finally:
        service.stop()


if __name__ == "__main__":
    main()
