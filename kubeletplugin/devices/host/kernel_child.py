"""One call of the kernel that may never return: write or read a file, or load a module.

``RealKernel`` runs this file in a process of its own. It imports next to nothing, since its start is part of
the time of every write. It prints what was read, or what modprobe printed, and then the error number of the
kernel on a line of its own, 0 for success.
"""

from __future__ import annotations

import errno
import os
import sys

_MODPROBE_PLACES = ("/sbin/modprobe", "/usr/sbin/modprobe", "/bin/modprobe", "/usr/bin/modprobe")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def main(arguments: list[str]) -> None:
    """``PARENT write PATH TEXT``, ``PARENT read PATH MOST_BYTES`` or ``PARENT module ROOT NAME``.

    Does nothing if the parent has ended.
    """
    parent, what, first, second = arguments
    try:
        # A child whose parent ends gets another parent. The plugin may have started again by then and read
        # the state of the function already; a write now would change it behind its back.
        if os.getppid() != int(parent):
            raise OSError(errno.ECANCELED, "the process that asked for it has ended")
        if what == "write":
            _write(first, os.fsencode(second))
        elif what == "read":
            _read(first, int(second))
        else:
            _load(first, second)
    except OSError as error:
        # The parent takes the last line as the number, whatever a file or modprobe said before it.
        _say(f"\n{error.errno}".encode())
    else:
        _say(b"\n0")


def _write(path: str, data: bytes) -> None:
    # One write(2), unbuffered: sysfs takes each call for a complete command.
    file = os.open(path, os.O_WRONLY)
    os.write(file, data)


def _read(path: str, most_bytes: int) -> None:
    file = os.open(path, os.O_RDONLY)
    _say(os.read(file, most_bytes))


def _load(root: str, name: str) -> None:
    """Run the modprobe below ``root`` as if that were the root, with the host's module files and settings."""
    if root != "/":
        # chroot alone leaves the working directory outside of the new root.
        os.chroot(root)
        os.chdir("/")
    # modprobe complains on stderr; the parent reads stdout alone.
    os.dup2(1, 2)
    program = next((path for path in _MODPROBE_PLACES if os.access(path, os.X_OK)), _MODPROBE_PLACES[0])
    environment = {"PATH": _PATH, "LC_ALL": "C"}
    # "--" ends the options, so that no module name can be taken for one.
    pid = os.posix_spawn(program, [program, "--", name], environment)
    _, status = os.waitpid(pid, 0)
    if status:
        raise OSError(errno.EIO, "modprobe failed; see its message")


def _say(data: bytes) -> None:
    os.write(1, data)


if __name__ == "__main__":
    main(sys.argv[1:])
