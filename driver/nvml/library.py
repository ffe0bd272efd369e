"""Finds the NVIDIA driver's libraries, and the file that NVML is loaded from; ``real`` hands it to pynvml.

The dynamic linker alone would not do: it keeps a library for ever that it has found by its soname, whatever
lies in its place since, and never looks again into a folder that was not there at its first look.
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
_MACHINES = {62: "x86_64", 183: "aarch64"}
"""``e_machine`` of elf.h."""


class LibraryUnusable(DriverNotLoaded):
    """NVML's library is there, and the dynamic linker refuses it; ``words`` are the linker's."""

    default_way_out = (
        "install the NVIDIA driver anew, for this machine's architecture; it is noticed by itself"
    )

    def __init__(self, words: str) -> None:
        super().__init__(f"loading {SONAME}", Code.LIBRARY_NOT_FOUND)
        self.what = f"NVML's library cannot be loaded, {words}"


class NoDriverToLoad(DriverNotLoaded):
    """No driver root is there to load NVML's library from."""

    def __init__(self, error: NodeIncomplete) -> None:
        super().__init__(f"finding {SONAME}", Code.LIBRARY_NOT_FOUND)
        self.what, self.way_out = error.what, error.way_out


@dataclass(frozen=True, slots=True)
class Loaded:
    """A library as ``load`` gave it; ``file`` says which file it was, and in which state."""

    library: object
    file: tuple[object, ...]


class NvmlLibrary:
    """The library of the driver below the root that counts now.

    Below the root of this machine itself, what lies in none of the known folders is left to the linker to
    find. ``load`` opens a library by path or soname and raises OSError; it is ctypes.CDLL but in tests.
    """

    def __init__(self, roots: DriverRoots, load: Callable[[str], object] = ctypes.CDLL) -> None:
        self._roots = roots
        self._load = load
        self._loaded: Loaded | None = None
        self._linked_folder: Path | None = None

    def current(self) -> Loaded:
        """The library to use now: the same object as before unless another file lies there since.

        Raises LibraryUnusable when none of the files can be loaded, DriverNotLoaded when there are none.
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
                refused.append(f"{_with_path(path, error)}{_built_for(path)}")
        if root.seen == SLASH:
            return self._from_linker(refused)
        if refused:
            raise LibraryUnusable("; ".join(refused))
        raise DriverNotLoaded(f"finding {SONAME} below {root.seen}", Code.LIBRARY_NOT_FOUND)

    def _files(self, root: Root) -> Iterator[Path]:
        """The files that may be it, the likeliest first.

        Links are followed to the file that has the driver's version in its name: the linker takes a path
        that it has loaded before for the same library, whatever lies there by then.
        """
        seen: set[Path] = set()
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
        status = path.stat()
        file = (str(path), status.st_dev, status.st_ino, status.st_mtime_ns)
        if self._loaded is None or self._loaded.file != file:
            self._loaded = Loaded(self._opened(str(path)), file)
        return self._loaded

    def _from_linker(self, refused: list[str]) -> Loaded:
        """The library that only the linker finds, in a folder of /etc/ld.so.conf for example."""
        if self._loaded is None or self._loaded.file != (SONAME,):
            try:
                self._loaded = Loaded(self._opened(SONAME), (SONAME,))
            except OSError as error:
                if refused:
                    raise LibraryUnusable("; ".join(refused)) from error
                raise DriverNotLoaded(f"loading {SONAME}", Code.LIBRARY_NOT_FOUND) from error
            self._linked_folder = _folder_of(self._loaded.library)
        return self._loaded

    def _opened(self, name: str) -> object:
        """The library, loaded; raises OSError, for a file that is no NVML as well."""
        library = self._load(name)
        try:
            getattr(library, _FIRST_CALL)
        except AttributeError as error:
            raise OSError(str(error)) from error
        return library


def _with_path(path: Path, error: OSError) -> str:
    words = str(error)
    return words if str(path) in words else f"{path}: {words}"


def _built_for(path: Path) -> str:
    """Says that a library is another machine's; of that the linker only says that there is no such file."""
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
    """The folder in which the linker has found a library, None when that is not known.

    It is asked by the address of a function: other versions may still be mapped from before.
    """
    found = _Found()
    try:
        address = ctypes.cast(getattr(library, _FIRST_CALL), ctypes.c_void_p)
        told = ctypes.CDLL(None).dladdr(address, ctypes.byref(found))
    except (AttributeError, ctypes.ArgumentError):
        return None  # a C library without dladdr, or no library of C
    return Path(os.fsdecode(found.file)).parent if told and found.file else None
