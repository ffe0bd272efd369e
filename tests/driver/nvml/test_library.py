"""Which file NVML is loaded from, and what is said of one that cannot be loaded; the files are real."""

import ctypes
import subprocess
from pathlib import Path

import pytest

from driver.nvml.library import SONAME, LibraryUnusable, NvmlLibrary
from driver.roots.places import LIBRARY_FOLDERS
from kubeletplugin.devices.host.driver_files import DriverRoot
from tests import needs
from tests.gpus import DriverNotLoaded, DriverRoots, RealNvml

FOLDER = LIBRARY_FOLDERS[0]
compiled = needs.GCC

NVML = """
#include <string.h>
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *version, unsigned length) { strcpy(version, VERSION); return 0; }
"""
BROKEN = "int of_another_driver(void); int nvmlInitWithFlags(unsigned f) { return of_another_driver(); }"
FOREIGN = "int something_else(void) { return 0; }"
MACHINE_OFFSET, AARCH64, X86_64 = 18, 183, 62


def build(folder: Path, version: str, source: str = NVML) -> Path:
    """A library of this version, and the link of its soname to it, as the NVIDIA driver has them."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"libnvidia-ml.so.{version}"
    command = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{SONAME}", f'-DVERSION="{version}"', "-xc", "-"]
    subprocess.run([*command, "-o", file.with_suffix(".new")], input=source.encode(), check=True)
    file.with_suffix(".new").rename(file)
    (folder / SONAME).unlink(missing_ok=True)
    (folder / SONAME).symlink_to(file.name)
    return file


def below(root: Path) -> RealNvml:
    """The binding over the library of a driver root."""
    return RealNvml(DriverRoots.fixed(root))


def version_of(nvml: RealNvml) -> str:
    """What a session says; each asks for the library anew."""
    nvml.init()
    try:
        return nvml.driver_version()
    finally:
        nvml.shutdown()


class Linker:
    """Loads what lies below a folder, and by the soname the ``linked`` file: none of this machine's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.linked: Path | None = None

    def __call__(self, name: str) -> object:
        if name == SONAME and self.linked is not None:
            name = str(self.linked)
        if not name.startswith(str(self.folder)):
            raise OSError(f"{name}: cannot open shared object file: No such file or directory")
        return ctypes.CDLL(name)


@compiled
@pytest.mark.parametrize("folder", LIBRARY_FOLDERS)
def test_nvml_and_containers_have_their_libraries_from_the_same_folders(tmp_path: Path, folder: str) -> None:
    build(tmp_path / folder, "570.1.1")

    assert version_of(below(tmp_path)) == "570.1.1"
    assert DriverRoot(tmp_path).files().version == "570.1.1"


@compiled
@pytest.mark.parametrize("version", ["580.1.1", "570.1.1"], ids=["another version", "the same version anew"])
def test_another_library_in_its_place_is_loaded(tmp_path: Path, version: str) -> None:
    build(tmp_path / FOLDER, "570.1.1")
    library = NvmlLibrary(DriverRoots.fixed(tmp_path))
    before = library.current()
    build(tmp_path / FOLDER, version)

    assert library.current() is not before
    assert version_of(below(tmp_path)) == version


@compiled
def test_without_a_driver_root_it_is_loaded_when_it_comes_and_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is not there at first either: the linker would never look into it again."""
    folder = tmp_path / "later"
    monkeypatch.setenv("LD_LIBRARY_PATH", f":{folder}")
    nvml = RealNvml(load=Linker(tmp_path))
    with pytest.raises(DriverNotLoaded):
        nvml.init()
    folder.mkdir()
    (folder / SONAME).write_text("not a library")
    with pytest.raises(LibraryUnusable, match=f"{folder / SONAME}: file too short"):
        nvml.init()

    versions = []
    for version in ("570.1.1", "580.1.1"):
        build(folder, version)
        versions.append(version_of(nvml))

    assert versions == ["570.1.1", "580.1.1"]


@compiled
def test_a_library_that_only_the_linker_finds_is_loaded_anew_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    linker = Linker(tmp_path)
    linker.linked = build(tmp_path / "wsl", "570.1.1")
    nvml = RealNvml(load=linker)
    before = version_of(nvml)
    build(tmp_path / "wsl", "580.1.1")
    assert (before, version_of(nvml)) == ("570.1.1", "580.1.1")


def test_a_file_that_is_no_library_is_told_with_its_path_and_the_linkers_words(tmp_path: Path) -> None:
    with pytest.raises(DriverNotLoaded, match=str(tmp_path)):
        below(tmp_path).init()
    path = tmp_path / FOLDER / SONAME
    path.parent.mkdir(parents=True)
    path.write_text("not a library")

    with pytest.raises(LibraryUnusable) as caught:
        below(tmp_path).init()

    assert f"{path}: file too short" in str(caught.value)
    assert "load the NVIDIA driver" not in str(caught.value)


@compiled
@pytest.mark.parametrize(
    ("source", "words"),
    [(BROKEN, "undefined symbol: of_another_driver"), (FOREIGN, "undefined symbol: nvmlInitWithFlags")],
    ids=["its own", "NVML's"],
)
def test_a_missing_symbol_is_named(tmp_path: Path, source: str, words: str) -> None:
    path = build(tmp_path / FOLDER, "570.1.1", source)

    with pytest.raises(LibraryUnusable, match=f"{path}: {words}"):
        below(tmp_path).init()


def of_another_machine(path: Path) -> None:
    """Make the library one for another architecture: its header says which."""
    content = bytearray(path.read_bytes())
    ours = content[MACHINE_OFFSET]
    content[MACHINE_OFFSET] = X86_64 if ours == AARCH64 else AARCH64
    path.unlink()
    path.write_bytes(content)


@compiled
def test_a_library_for_another_machine_is_told_as_such(tmp_path: Path) -> None:
    """The linker's own words are that there is no such file."""
    path = build(tmp_path / FOLDER, "570.1.1")
    of_another_machine(path)

    with pytest.raises(LibraryUnusable, match=rf"{path}: .*\(it is built for (aarch64|x86_64)\)"):
        below(tmp_path).init()


@compiled
def test_a_library_that_cannot_be_loaded_does_not_hide_one_that_can(tmp_path: Path) -> None:
    of_another_machine(build(tmp_path / LIBRARY_FOLDERS[1], "570.1.1"))
    build(tmp_path / LIBRARY_FOLDERS[4], "570.1.1")

    assert version_of(below(tmp_path)) == "570.1.1"
