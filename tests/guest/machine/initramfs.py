"""Builds the first file system of a guest: busybox, the modules that find the host's files, and ``init``."""

import gzip
import lzma
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

INIT = Path(__file__).with_name("init")

_FIRST_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
_END = "TRAILER!!!"


@dataclass(frozen=True, slots=True)
class File:
    """A file or, without ``data``, a folder of the archive; ``path`` is relative."""

    path: str
    mode: int
    data: bytes | None = None


def initramfs(busybox: Path, module_files: Path) -> bytes:
    """The archive, as the kernel unpacks it (Documentation/driver-api/early-userspace/buffer-format.rst)."""
    told = ((module_files / name).read_text() for name in ("modules.dep", "modules.builtin"))
    modules = list(with_needs(_FIRST_MODULES, *told))
    folders = ("bin", "proc", "sys", "dev", "host", "top", "new", "out", "modules")
    program = stat.S_IFREG | 0o755
    files = [
        *(File(folder, stat.S_IFDIR | 0o755) for folder in folders),
        File("bin/busybox", program, busybox.read_bytes()),
        File("init", program, INIT.read_bytes()),
        *(
            File(f"modules/{number:02}.ko", stat.S_IFREG | 0o644, _module(module_files / path))
            for number, path in enumerate(modules)
        ),
    ]
    return gzip.compress(
        b"".join(_entry(number, file) for number, file in enumerate(files, 1)) + _trailer(), 1
    )


def with_needs(names: tuple[str, ...], modules_dep: str, modules_builtin: str) -> Iterator[str]:
    """The paths of modules in the order in which they can be loaded; raises KeyError for unknown ones.

    Those that are part of the kernel are left out.
    """
    needs: dict[str, tuple[str, list[str]]] = {}
    for line in modules_dep.splitlines():
        path, _, rest = line.partition(":")
        needs[_name(path)] = (path, rest.split())
    built_in = {_name(path) for path in modules_builtin.splitlines()}
    done: dict[str, None] = {}
    for name in names:
        if name in built_in:
            continue
        path, before = needs[name]
        # depmod writes the modules that are needed so that the last has to be loaded first.
        done.update(dict.fromkeys([*reversed(before), path]))
    yield from done


def _name(path: str) -> str:
    return Path(path).name.split(".")[0].replace("-", "_")


def _module(path: Path) -> bytes:
    """A module as busybox loads it."""
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data


def _entry(inode: int, file: File) -> bytes:
    name = file.path.encode() + b"\0"
    data = file.data or b""
    numbers = (inode, file.mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0)
    head = b"070701" + b"".join(b"%08x" % number for number in numbers) + name
    return _padded(head) + _padded(data)


def _trailer() -> bytes:
    return _entry(0, File(_END, 0))


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
