"""One call of the kernel that may never return: writes or reads a file, or loads a module.

``real_kernel`` runs it as a file, in a process of its own. It imports next to nothing,
since a write takes as long as it takes to start this. Its stdout has what was read, or what modprobe said,
and then the kernel's number on a line of its own, 0 for none.
"""

from __future__ import annotations

import errno
import os
import sys

_MODPROBE_PLACES = ("/sbin/modprobe", "/usr/sbin/modprobe", "/bin/modprobe", "/usr/bin/modprobe")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def main(arguments: list[str]) -> None:
    """``PARENT write PATH TEXT``, ``PARENT read PATH MOST_BYTES`` or ``PARENT module ROOT NAME``.

    A parent that has ended meanwhile may have been followed by another one, which has looked already at how
    things are: nothing is done any more then.
    """
    parent, what, first, second = arguments
    try:
        if os.getppid() != int(parent):
            raise OSError(errno.ECANCELED, "who asked for it has ended")
        if what == "write":
            _write(first, os.fsencode(second))
        elif what == "read":
            _read(first, int(second))
        else:
            _load(first, second)
    except OSError as error:
        _say(f"\n{error.errno}".encode())
    else:
        _say(b"\n0")


def _write(path: str, data: bytes) -> None:
    """In one call: the kernel takes each call for a command of its own."""
    file = os.open(path, os.O_WRONLY)
    os.write(file, data)


def _read(path: str, most_bytes: int) -> None:
    file = os.open(path, os.O_RDONLY)
    _say(os.read(file, most_bytes))


def _load(root: str, name: str) -> None:
    """Run the modprobe below ``root`` as if that were the root: module files and settings are the host's."""
    if root != "/":
        os.chroot(root)
        os.chdir("/")
    os.dup2(1, 2)
    program = next((path for path in _MODPROBE_PLACES if os.access(path, os.X_OK)), _MODPROBE_PLACES[0])
    environment = {"PATH": _PATH, "LC_ALL": "C"}
    pid = os.posix_spawn(program, [program, "--", name], environment)
    _, status = os.waitpid(pid, 0)
    if status:
        raise OSError(errno.EIO, "modprobe failed; it has said why")


def _say(data: bytes) -> None:
    os.write(1, data)


if __name__ == "__main__":
    main(sys.argv[1:])
