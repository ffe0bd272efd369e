"""The MPS supervisor's program: reads the flags, and serves until a signal."""

from __future__ import annotations

from pathlib import Path

import click

from driver.process import command_line
from driver.process.log import Level, configure
from driver.process.service import Service
from driver.roots.flag import AUTO, DRIVER_ROOT_HELP, HOST_ROOT_HELP, checked_folder, roots_from_flags
from kubeletplugin.devices.host.driver_files import InstalledDriver
from kubeletplugin.devices.host.driver_programs import DriverPrograms
from kubeletplugin.kubelet.wire.mps_daemon import SOCKET
from kubeletplugin.kubelet.wire.server import WORKERS, SocketServer
from kubeletplugin.sharing.mps.daemon_keeper import Site
from kubeletplugin.sharing.mps.daemon_shm import DaemonMemory
from kubeletplugin.sharing.mps.supervisor import LIBRARIES, Supervisor, handlers, probes_of

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@command_line.command("gpu-dra-mps")
@click.option(
    "--mps-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default="/run/gpu.nvidia.com/mps",
    show_envvar=True,
    help="The folder for the supervisor's socket and all daemons; containers mount pipes from it.",
)
@click.option(
    "--driver-root",
    callback=lambda _context, _option, text: checked_folder(text),
    default=AUTO,
    show_envvar=True,
    help=DRIVER_ROOT_HELP,
)
@click.option("--host-root", type=_FOLDER, default="/", show_envvar=True, help=HOST_ROOT_HELP)
@click.option(
    "--sysfs-root",
    type=_FOLDER,
    default="/sys",
    show_envvar=True,
    help="Where sysfs is mounted; it shows the loaded version of the NVIDIA driver.",
)
@click.option(
    "--proc-root",
    type=_FOLDER,
    default="/proc",
    show_envvar=True,
    help="The /proc with all processes of the node, to find MPS daemons that others started.",
)
@click.option("--no-mounts", is_flag=True, hidden=True)  # for verify and the demo: see DaemonMemory
@click.option(
    "--shm-mib",
    type=click.IntRange(1, 1 << 20),
    default=1024,
    show_envvar=True,
    help="The size in MiB of the /dev/shm that each daemon and its clients get.",
)
@command_line.health_addr
@command_line.log_level
def main(
    mps_dir: Path,
    driver_root: str,
    host_root: Path,
    sysfs_root: Path,
    proc_root: Path,
    no_mounts: bool,
    shm_mib: int,
    health_addr: str,
    log_level: Level,
) -> None:
    """Run the MPS control daemons of this node for the kubelet plugin."""
    configure(log_level)
    roots = roots_from_flags(driver_root, host_root, sysfs_root)
    roots.look()  # its log says which root is used
    programs = DriverPrograms(InstalledDriver(roots), mps_dir.absolute() / LIBRARIES)
    proc = proc_root.absolute()
    memory = DaemonMemory(None if no_mounts else shm_mib, proc)
    serve(Site(programs, mps_dir.absolute(), proc, memory), health_addr)


def serve(site: Site, health_addr: str) -> None:
    """Serve until a signal; raises ConfigError or StorageError if it cannot start."""
    service = Service()
    service.catch_signals()
    try:
        pool = service.pool("mps-calls", WORKERS)
        supervisor = Supervisor(site, service)
        server = SocketServer(site.mps_dir / SOCKET, handlers(supervisor), pool)
        server.start()
        service.on_stop("MPS socket", server.stop)
        if health_addr:
            from driver.process import probes

            probes.serve(service, health_addr, probes_of(supervisor, server.path, service.pulse))
        service.on_stop("MPS streams", supervisor.close)
        service.run()
    finally:
        service.stop()


if __name__ == "__main__":
    main()
