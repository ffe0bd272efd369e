"""Finds and loads the NVML library of the driver that is installed now; ``real`` passes it to pynvml.

The dynamic linker alone cannot follow an upgrade. It never replaces a library that it has loaded by its
soname, and it never searches a folder again that was missing the first time.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from driver.errors import NodeIncomplete
from driver.nvml.api import Code, DriverNotLoaded
from driver.roots.driver_roots import DriverRoots
from driver.roots.places import LIBRARY_FOLDERS
from driver.roots.root import SLASH, Root

SONAME = "libnvidia-ml.so.1"
_FIRST_CALL = "nvmlInitWithFlags"
# ``e_machine`` of elf.h.
_MACHINES = {62: "x86_64", 183: "aarch64"}


class LibraryUnusable(DriverNotLoaded):
    """NVML's library exists, but the dynamic linker refuses it; ``words`` is the linker's message."""

    default_way_out = (
        "install the NVIDIA driver again, for this machine's architecture; this needs no restart of this "
        "process"
    )

    def __init__(self, words: str) -> None:
        super().__init__(f"loading {SONAME}", Code.LIBRARY_NOT_FOUND)
        self.what = f"cannot load NVML's library, {words}"


class NoDriverToLoad(DriverNotLoaded):
    """There is no driver root from which to load NVML's library."""

    def __init__(self, error: NodeIncomplete) -> None:
        super().__init__(f"finding {SONAME}", Code.LIBRARY_NOT_FOUND)
        self.what, self.way_out = error.what, error.way_out


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded library. ``file`` identifies the file: its path, device, inode and time of change."""

    library: object
    file: tuple[object, ...]


class NvmlLibrary:
    """The NVML library below the current driver root.

    If the driver root is this machine's own ``/`` and no known folder has the library, the linker searches
    for it. ``load`` opens a library by path or soname and raises OSError; tests pass another one than
    ctypes.CDLL.
    """

    def __init__(self, roots: DriverRoots, load: Callable[[str], object] = ctypes.CDLL) -> None:
        self._roots = roots
        self._load = load
        self._loaded: Loaded | None = None
        self._linked_folder: Path | None = None

    def current(self) -> Loaded:
        """The library to use now: the same object as before unless the file was replaced.

        Raises LibraryUnusable if none of the files can be loaded, DriverNotLoaded if there are none.
        """
        try:
            root = self._roots.current()
        except NodeIncomplete as error:
            raise NoDriverToLoad(error) from error
        refused: list[str] = []
        for path in self._files(root):
            try:
                return self._from(path)
            except OSError as error:
                # A broken file must not hide a good one in another folder. All refusals are named at the end.
                refused.append(f"{_with_path(path, error)}{_built_for(path)}")
        # Below a foreign root the linker of this container would find the container's own library, if any.
        if root.seen == SLASH:
            return self._from_linker(refused)
        if refused:
            raise LibraryUnusable("; ".join(refused))
        raise DriverNotLoaded(f"finding {SONAME} below {root.seen}", Code.LIBRARY_NOT_FOUND)

    def _files(self, root: Root) -> Iterator[Path]:
        """The candidates, the likeliest first.

        Links are followed to the file with the driver's version in its name. If a link's own path were loaded
        again after an upgrade, the linker would return the library that it loaded from there before.
        """
        seen: set[Path] = set()
        # Several folders may be links to one another, usr/lib64 and lib64 for example.
        for file in self._found(root):
            if file is not None and file.is_file() and file not in seen:
                seen.add(file)
                yield file

    def _found(self, root: Root) -> Iterator[Path | None]:
        if root.seen == SLASH:
            # The linker's own order: what the environment names comes first.
            named = os.environ.get("LD_LIBRARY_PATH", "").split(":")
            yield from ((Path(name) / SONAME).resolve() for name in named if name)
        yield from (root.at(f"{folder}/{SONAME}") for folder in LIBRARY_FOLDERS)
        if self._linked_folder is not None:
            yield (self._linked_folder / SONAME).resolve()

    def _from(self, path: Path) -> Loaded:
        """The library in this file; raises OSError."""
        # The linker keys a loaded library by device and inode, but an inode can be used again: the time tells
        # the files apart.
        status = path.stat()
        file = (str(path), status.st_dev, status.st_ino, status.st_mtime_ns)
        if self._loaded is None or self._loaded.file != file:
            self._loaded = Loaded(self._opened(str(path)), file)
        return self._loaded

    def _from_linker(self, refused: list[str]) -> Loaded:
        """The library in a folder that only the linker knows, from /etc/ld.so.conf for example."""
        if self._loaded is None or self._loaded.file != (SONAME,):
            try:
                self._loaded = Loaded(self._opened(SONAME), (SONAME,))
            except OSError as error:
                if refused:
                    raise LibraryUnusable("; ".join(refused)) from error
                raise DriverNotLoaded(f"loading {SONAME}", Code.LIBRARY_NOT_FOUND) from error
            # From here on this folder is looked into by path: for a soname that it has loaded once, dlopen(3)
            # returns the loaded library for ever, whatever file is there now.
            self._linked_folder = _folder_of(self._loaded.library)
        return self._loaded

    def _opened(self, name: str) -> object:
        """Load a library; raises OSError, also for a file that is not NVML."""
        library = self._load(name)
        try:
            # A file of that name need not be NVML. dlopen accepts any shared object.
            getattr(library, _FIRST_CALL)
        except AttributeError as error:
            raise OSError(str(error)) from error
        return library


def _with_path(path: Path, error: OSError) -> str:
    # If a dependency is missing, the linker names the dependency and not the library that needs it.
    words = str(error)
    return words if str(path) in words else f"{path}: {words}"


def _built_for(path: Path) -> str:
    """Says for which machine a library is built, if not for this one: the linker's message does not."""
    try:
        theirs, ours = _machine(path), _machine(Path("/proc/self/exe"))
    except OSError:
        return ""
    if theirs is None or theirs == ours:
        return ""
    return f" (it is built for {_MACHINES.get(theirs, f'ELF machine {theirs}')})"


def _machine(path: Path) -> int | None:
    """``e_machine`` of an ELF file, None for any other."""
    with path.open("rb") as file:
        head = file.read(20)
    # The identification has 16 bytes, e_type 2, then comes e_machine. Byte 5 (EI_DATA) is the byte order.
    if len(head) < 20 or head[:4] != b"\x7fELF":
        return None
    return int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")


class _Found(ctypes.Structure):
    """Dl_info of dladdr(3)."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _folder_of(library: object) -> Path | None:
    """The folder in which the linker found a library, None if that is not known."""
    found = _Found()
    try:
        # Ask by the address of a function and not by name: after an upgrade the old version may still be
        # mapped under the same soname.
        address = ctypes.cast(getattr(library, _FIRST_CALL), ctypes.c_void_p)
        is_known = ctypes.CDLL(None).dladdr(address, ctypes.byref(found))
    except (AttributeError, ctypes.ArgumentError):
        # The C library has no dladdr, or ``library`` is an object of a test.
        return None
    return Path(os.fsdecode(found.file)).parent if is_known and found.file else None
