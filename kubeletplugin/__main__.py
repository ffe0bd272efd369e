"""The kubelet plugin's program: reads the flags, and serves until a signal or cleans the node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from driver.process import command_line
from driver.process.log import Level, configure
from driver.roots.flag import AUTO, DRIVER_ROOT_HELP, HOST_ROOT_HELP, checked_folder
from kubeletplugin.claims.cdi.hook import COPY
from kubeletplugin.early_sockets import open_early_sockets
from kubeletplugin.process_inputs import Given
from kubeletplugin.settings import IMEX_SOCKET, Settings
from kubeletplugin.wait_for_other_driver import wait_for_nvidia_driver

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@command_line.command("gpu-dra-kubeletplugin")
@click.option("--node-name", required=True, show_envvar=True, help="The name of this node's Node object.")
@command_line.kubeconfig
@command_line.nvml
@click.option(
    "--driver-root",
    callback=lambda _context, _option, text: checked_folder(text),
    default=AUTO,
    show_envvar=True,
    help=DRIVER_ROOT_HELP,
)
@click.option("--host-root", type=_FOLDER, default="/", show_envvar=True, help=HOST_ROOT_HELP)
@click.option(
    "--host-driver-root",
    type=click.Path(path_type=Path),
    show_default="--driver-root",
    show_envvar=True,
    help="The path of the --driver-root folder on the host, if this process sees it at another path.",
)
@click.option(
    "--plugins-dir",
    type=_FOLDER,
    default="/var/lib/kubelet/plugins",
    show_envvar=True,
    help="The kubelet's folder for plugins; sockets and the journal go to gpu.nvidia.com below it.",
)
@click.option(
    "--registry-dir",
    type=_FOLDER,
    default="/var/lib/kubelet/plugins_registry",
    show_envvar=True,
    help="The folder in which the kubelet looks for registration sockets.",
)
@click.option(
    "--cdi-dir",
    type=_FOLDER,
    default="/var/run/cdi",
    show_envvar=True,
    help="A folder that the container runtime reads CDI specs from.",
)
@click.option(
    "--cdi-hook",
    default=COPY,
    show_envvar=True,
    help="The nvidia-cdi-hook that the container runtime runs: copy installs the image's copy on the host, "
    "copy:FILE installs FILE, and a path names a program on the host.",
)
@click.option(
    "--memory-hook",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    show_default="the image's",
    show_envvar=True,
    help="The gpu-memory-hook that is installed on the host for the container runtime.",
)
@click.option("--sysfs-root", type=_FOLDER, default="/sys", show_envvar=True, help="Where sysfs is mounted.")
@click.option(
    "--mps-dir",
    type=click.Path(path_type=Path),
    default="/run/gpu.nvidia.com/mps",
    show_envvar=True,
    help="The folder of the MPS supervisor; it needs the same path here, in the supervisor and on the host.",
)
@command_line.metrics_addr
@command_line.health_addr
@click.option(
    "--used-memory-status-seconds",
    type=click.IntRange(min=0),
    default=0,
    show_envvar=True,
    help="How often the used GPU memory is written into the status of claims, if it changed by more than "
    "5 percent; 0 turns this off.",
)
@click.option(
    "--channels",
    is_flag=True,
    show_envvar=True,
    help="Also prepare claims for IMEX channels, as the driver channels.gpu.nvidia.com.",
)
@click.option(
    "--imex-socket",
    type=click.Path(path_type=Path),
    default=IMEX_SOCKET,
    show_envvar=True,
    help="The socket of nvidia-imex on the host (IMEX_CMD_UNIX_DOMAIN_PATH).",
)
@click.option(
    "--pod-uid",
    default="",
    show_envvar=True,
    help="The UID of this pod; with it, two instances can serve side by side during a rolling update.",
)
@click.option(
    "--retire",
    is_flag=True,
    show_envvar=True,
    help="Do not serve; undo the plugin's changes to the node and remove its files.",
)
@command_line.log_level
@click.pass_obj
def main(given: Given | None, /, log_level: Level, *, retire: bool, **flags: Any) -> None:
    """Prepare and unprepare the GPUs of claims for the kubelet of this node."""
    configure(log_level)
    given = given or Given()
    settings = Settings.from_flags(**flags)
    if retire:
        from kubeletplugin.retire import retire_node

        retire_node(settings, given)
        return
    # No socket is open yet: the kubelet must not find two drivers of one name.
    taken = wait_for_nvidia_driver(settings, given.intervals)
    early = open_early_sockets(settings, given.hung_seconds)
    try:
        from kubeletplugin.wiring import serve  # imported behind the open sockets

        serve(settings, given, early, taken)
    finally:
        early.service.stop()


if __name__ == "__main__":
    main()
