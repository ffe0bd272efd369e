"""Says what this machine lacks to run a cluster, with the Debian package that brings it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from envtest.client.errors import MissingPrerequisite

# Program -> Debian package.
PROGRAMS = {
    "busybox": "busybox-static",
    "mount": "mount",
    "nsenter": "util-linux",
    "openssl": "openssl",
    "runc": "runc",
    "umount": "mount",
    "unshare": "util-linux",
}
# The dynamic loader's path is in the first page of a program that needs one.
LOADER_MARK = b"/ld-linux"


def check_machine(
    effective_uid: int | None = None, which: Callable[[str], str | None] = shutil.which
) -> None:
    """Return if a cluster can run here.

    Args:
        effective_uid: the user to check for; this process's unless given.
        which: finds a program on the PATH.

    Raises:
        MissingPrerequisite: names everything that is missing.
    """
    if (os.geteuid() if effective_uid is None else effective_uid) != 0:
        raise MissingPrerequisite("a real cluster needs root (mounts, namespaces, cgroups): run this as root")
    missing = {name: package for name, package in PROGRAMS.items() if which(name) is None}
    busybox = which("busybox")
    if busybox is not None and needs_loader(Path(busybox)):
        missing["a static busybox"] = "busybox-static"
    if missing:
        packages = " ".join(sorted(set(missing.values())))
        raise MissingPrerequisite(
            f"a real cluster needs {', '.join(sorted(missing))}: apt-get install {packages}"
        )


def needs_loader(program: Path) -> bool:
    """Whether a program is linked dynamically, so that it cannot run alone in an image."""
    with program.open("rb") as file:
        return LOADER_MARK in file.read(4096)
