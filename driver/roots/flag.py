"""Reads the flags that say where the NVIDIA driver is: ``--driver-root`` and those that belong to it."""

from __future__ import annotations

from pathlib import Path

import click

from driver.errors import ConfigError
from driver.roots.driver_roots import DriverRoots

AUTO = "auto"
DRIVER_ROOT_HELP = (
    "Where this process sees the installed NVIDIA driver; auto searches the known places below --host-root."
)
HOST_ROOT_HELP = "Where this process sees the root of the host's file system."


def roots_from_flags(
    driver_root: str, host_root: Path, sysfs_root: Path, host_driver_root: Path | None = None
) -> DriverRoots:
    """The driver roots for ``auto``, or for a path, which the host has at ``host_driver_root``.

    Raises ConfigError if flags contradict each other, or the host's root does not exist.
    """
    if driver_root != AUTO:
        return DriverRoots.fixed(Path(driver_root).absolute(), host_driver_root)
    if host_driver_root is not None:
        raise ConfigError(
            f"--host-driver-root has no effect while --driver-root is {AUTO}",
            "leave it out, or give --driver-root the path at which this process sees that folder",
        )
    if not host_root.is_dir():
        raise ConfigError(
            f"--host-root {host_root} is not a folder",
            "mount the host's root there, or set it to where that is mounted",
        )
    return DriverRoots.probed(host_root.absolute(), sysfs_root)


def checked_folder(driver_root: str) -> str:
    """The flag's value unchanged; raises click.BadParameter for a path that is not a folder."""
    if driver_root != AUTO and not Path(driver_root).is_dir():
        raise click.BadParameter(f"{driver_root!r} is neither {AUTO} nor an existing folder")
    return driver_root
