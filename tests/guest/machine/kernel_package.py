"""Has Debian's kernel with its modules in a cache folder: downloaded and unpacked, never installed."""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from envtest.client.errors import MissingPrerequisite
from envtest.client.layout import user_cache

_LATEST = "linux-image-amd64"
_DEPENDS = re.compile(r"^ +Depends: (linux-image-[0-9]\S*)$", re.MULTILINE)
_PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "depmod": "kmod",
    "dpkg-deb": "dpkg",
    "apt-get": "apt",
}


@dataclass(frozen=True, slots=True)
class GuestKernel:
    """An unpacked kernel: ``image`` to start, ``modules`` the folder that is /lib/modules there."""

    image: Path
    modules: Path
    release: str

    @property
    def module_files(self) -> Path:
        """The folder of its own modules."""
        return self.modules / self.release


def guest_kernel(environment: Mapping[str, str] = os.environ) -> GuestKernel:
    """The kernel that Debian has now; two callers at once download it once.

    Raises MissingPrerequisite, which names what is missing.
    """
    missing = {name: package for name, package in _PROGRAMS.items() if shutil.which(name) is None}
    if missing:
        raise MissingPrerequisite(
            f"a guest needs {', '.join(missing)}: apt-get install {' '.join(sorted(set(missing.values())))}"
        )
    found = _DEPENDS.search(_run(["apt-cache", "depends", _LATEST], "knowing which kernel there is"))
    if found is None:
        raise MissingPrerequisite(f"apt knows no package {_LATEST}: run apt-get update")
    cache = user_cache(environment) / "guest"
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / found[1]
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            _unpack(found[1], target)
    (image,) = (target / "boot").glob("vmlinuz-*")
    return GuestKernel(image, target / "lib" / "modules", image.name.removeprefix("vmlinuz-"))


def _unpack(package: str, target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".new-", dir=target.parent) as folder:
        # apt downloads as a user of its own where it may, which has no rights in this folder.
        options = ["-o", "APT::Sandbox::User=root"]
        _run(["apt-get", *options, "download", package], f"downloading {package}", folder)
        (archive,) = Path(folder).glob("*.deb")
        unpacked = Path(folder, "unpacked")
        _run(["dpkg-deb", "-x", str(archive), str(unpacked)], f"unpacking {archive.name}")
        (modules,) = (unpacked / "lib" / "modules").iterdir()
        _run(["depmod", "-b", str(unpacked), modules.name], f"indexing the modules of {package}")
        unpacked.rename(target)


def _run(command: list[str], what: str, folder: str | None = None) -> str:
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        words = (ended.stderr.strip() or ended.stdout.strip()).splitlines()
        raise MissingPrerequisite(f"{what} failed: {words[-1] if words else 'it said nothing'}")
    return ended.stdout
