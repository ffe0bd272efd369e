"""Makes a container's root file system of the host's, without the NVIDIA driver, and becomes runc.

This is a program of its own: ``python -m gpuctl.verify.change.rootfs PLAN``. It enters a mount namespace of
its own first. So its mounts are seen by runc and the container alone, and end with them, even if everything
is killed. The root is an overlay: what the container writes goes to a tmpfs, never to the host.
"""

# Only the standard library, so that it starts at once.
from __future__ import annotations

import ctypes
import json
import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

_MOUNT_TABLE = Path("/proc/self/mountinfo")
_LDCONFIG = "/sbin/ldconfig"
_LDCONFIG_SECONDS = 60.0

# linux/sched.h and linux/mount.h
_CLONE_NEWNS = 0x00020000
_MS_RDONLY, _MS_NODEV, _MS_REMOUNT, _MS_BIND = 1, 4, 32, 4096
_MS_REC, _MS_SLAVE = 1 << 14, 1 << 19

_ESCAPES = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


@dataclass(frozen=True, slots=True)
class Plan:
    """What to make, with absolute paths.

    ``folder`` has the empty folders ``rootfs`` and ``layers``. ``needed`` are paths of the host that the
    container has to have, also where they lie on other file systems than ``/``. ``hidden`` are paths that it
    must not have. ``command`` is the command line that this process becomes.
    """

    folder: str
    needed: tuple[str, ...]
    hidden: tuple[str, ...]
    command: tuple[str, ...]

    def write(self, file: Path) -> None:
        """Write it for ``main``."""
        file.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, file: Path) -> Plan:
        """Read what ``write`` wrote."""
        fields = json.loads(file.read_text())
        return cls(fields["folder"], *(tuple(fields[name]) for name in ("needed", "hidden", "command")))


def main(arguments: Sequence[str]) -> int:
    """Make the root file system of a plan, and become its command; returns only if that fails."""
    plan = Plan.read(Path(arguments[0]))
    try:
        _call("unshare", _CLONE_NEWNS)
        # What the host unmounts later is unmounted here, too; nothing goes the other way.
        _mount("none", "/", "", _MS_REC | _MS_SLAVE)
        _make(plan)
        os.execv(plan.command[0], plan.command)  # noqa: S606 - an argument list, no shell
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"cannot make the container's root file system: {error}\n")
        return 1


def mount_points(table: str) -> frozenset[str]:
    """The mount points of a mountinfo table (proc_pid_mountinfo(5))."""
    # The fifth field is the mount point.
    return frozenset(_unescaped(line.split(" ")[4]) for line in table.splitlines())


def mount_point_of(path: str, points: frozenset[str]) -> str:
    """The mount point of the file system that a path without links lies on."""
    while path not in points and path != "/":
        path = os.path.dirname(path)  # noqa: PTH120 - paths are text here
    return path


def hide(upper: Path, lower: str, path: str) -> None:
    """Hide a path of ``lower`` in an overlay, by a whiteout in its upper folder, before it is mounted.

    The path has no links in its folders. Nothing is done outside ``upper``.
    """
    below = Path(path).relative_to(lower)
    for folder in list(below.parents)[-2::-1]:
        if (upper / folder).is_char_device():
            return  # it is hidden with this folder
        # A folder of the overlay has the mode and the owner of the upper one.
        if not (upper / folder).is_dir():
            status = (Path(lower) / folder).stat()
            (upper / folder).mkdir()
            os.chown(upper / folder, status.st_uid, status.st_gid)
            (upper / folder).chmod(stat.S_IMODE(status.st_mode))
    # A device 0:0 is a whiteout (Documentation/filesystems/overlayfs.rst).
    os.mknod(upper / below, stat.S_IFCHR, 0)


def _make(plan: Plan) -> None:
    points = mount_points(_MOUNT_TABLE.read_text())
    hidden: dict[str, set[str]] = {}
    for path in plan.hidden:
        # The last part may be a link, which is hidden itself; those before it are folders of the host.
        folder, name = os.path.split(path)
        real = os.path.join(os.path.realpath(folder), name)  # noqa: PTH118 - likewise
        if os.path.lexists(real):
            # The path may be a mount point itself, as a file that a container runtime has mounted: what is
            # hidden is that point.
            hidden.setdefault(mount_point_of(os.path.dirname(real), points), set()).add(real)  # noqa: PTH120 - likewise
    needed = {mount_point_of(os.path.realpath(path), points) for path in plan.needed if Path(path).exists()}
    layers = f"{plan.folder}/layers"
    _mount("tmpfs", layers, "tmpfs", _MS_NODEV, "size=128m,mode=0700")
    # A file system comes before those that are mounted on it.
    for number, lower in enumerate(sorted({"/", *needed}, key=len)):
        target = Path(f"{plan.folder}/rootfs{lower}")
        target.mkdir(parents=True, exist_ok=True)
        try:
            _overlay(lower, sorted(hidden.get(lower, ())), target, Path(f"{layers}/{number}"))
        except OSError:
            # Not every file system can be under an overlay, an overlay only under one other.
            if lower == "/" or lower in hidden:
                raise
            _mount(lower, str(target), "", _MS_BIND)
            _mount("none", str(target), "", _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _MS_NODEV)
    _forget_libraries(f"{plan.folder}/rootfs")


def _overlay(lower: str, hidden: Sequence[str], target: Path, layer: Path) -> None:
    upper, work = layer / "upper", layer / "work"
    upper.mkdir(parents=True)
    work.mkdir()
    for path in hidden:
        hide(upper, lower, path)
    # The root of an overlay has the mode of its upper folder.
    upper.chmod(stat.S_IMODE(Path(lower).stat().st_mode))
    _mount("overlay", str(target), "overlay", _MS_NODEV, f"lowerdir={lower},upperdir={upper},workdir={work}")


def _forget_libraries(root: str) -> None:
    """Make the linker's cache anew: that of the host has the libraries of the NVIDIA driver."""
    if Path(f"{root}{_LDCONFIG}").exists():
        subprocess.run(
            [_LDCONFIG, "-r", root],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_LDCONFIG_SECONDS,
            check=False,
        )


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    try:
        what = (source.encode(), target.encode(), kind.encode())
        _call("mount", *what, ctypes.c_ulong(flags), options.encode())
    except OSError as error:
        raise OSError(error.errno, f"mounting {kind or 'a folder'}: {error.strerror}", target) from error


def _call(name: str, *arguments: object) -> None:
    """Call a function of the C library; raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


def _unescaped(field: str) -> str:
    for escape, character in _ESCAPES.items():
        field = field.replace(escape, character)
    return field


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
