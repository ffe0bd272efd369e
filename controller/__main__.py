"""The controller's command: parses the flags and runs what controller/wiring.py connects."""

from __future__ import annotations

from pathlib import Path

import click

from controller.process_inputs import Given
from controller.wiring import NAME, Options, needed_capabilities, start
from driver.process import command_line
from driver.process.log import Level, configure
from driver.process.privileges import keep_only
from driver.roots.flag import AUTO, DRIVER_ROOT_HELP, HOST_ROOT_HELP


@command_line.command(NAME)
@click.option(
    "--node-name", required=True, show_envvar=True, help="The name of the Node whose GPUs are published."
)
@command_line.kubeconfig
@command_line.nvml
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
@command_line.metrics_addr
@command_line.health_addr
@command_line.log_level
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
    finally:
        service.stop()


if __name__ == "__main__":
    main()
