"""Lays the sysfs and the driver root of a fake machine for a test; what no test changes is built once.

A process builds the sysfs and the driver's files of each machine once, and tests link to them: a node has
some two hundred files, and there are a thousand nodes. Device nodes and capabilities are a test's own.
"""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from driver.roots.places import place_at
from driver.roots.root import Root
from fakegpu.driver_files.driver_root import build_driver_files
from fakegpu.sysfs.tree import PRETENDED
from tests.gpus import DriverRoots, FakeMachine, PciAddress, build_device_nodes, build_sysfs
from tests.plugin import InstalledDriver

_INSTALLED = ("usr", "lib", "var")


def lay_sysfs(folder: Path, machine: FakeMachine) -> Path:
    """Lay the sysfs of a shipped machine below ``folder/sys``, to be read only, in place of another's."""
    link = folder / "sys"
    link.unlink(missing_ok=True)
    link.symlink_to(shared_files(machine.spec.name) / "sys")
    return link


def bind_again(sysfs: Path, pci: PciAddress) -> None:
    """Have the kernel driver let go of a GPU and take it again, as with another board or a reload.

    The sysfs is the test's own then.
    """
    own_sysfs(sysfs)
    link = sysfs / "bus/pci/devices" / str(pci) / "driver"
    target = link.readlink()
    link.unlink()
    link.symlink_to(target)


def own_sysfs(sysfs: Path) -> None:
    """Have a test change its sysfs: it is a copy of its own then."""
    if sysfs.is_symlink():
        shipped = sysfs.resolve()
        sysfs.unlink()
        shutil.copytree(shipped, sysfs, symlinks=True, copy_function=shutil.copyfile)


def empty_sysfs(sysfs: Path) -> None:
    """Have the kernel write a sysfs of the test's own, which is faster than to change a copy."""
    if sysfs.is_symlink():
        sysfs.unlink()
        sysfs.mkdir()
        (sysfs / PRETENDED).touch()


def lay_driver_root(folder: Path, machine: FakeMachine) -> Path:
    """Lay the driver root of a shipped machine; what is in ``usr``, ``lib`` and ``var`` is to be read only.

    Its programs do not reach the machine: a test that runs them builds a root of its own.
    """
    build_device_nodes(folder, machine)
    for name in _INSTALLED:
        (folder / name).symlink_to(shared_files(machine.spec.name) / name)
    return folder


def laid_driver(root: Path) -> InstalledDriver:
    """The driver below a root that was laid: its folders are links to files that lie outside of it."""
    return InstalledDriver(DriverRoots(Root(place_at(str(root)), root, root, Path("/")), root, root))


def reinstall_driver(folder: Path, machine: FakeMachine) -> None:
    """Install the driver in the version that the machine has now; its files are the test's own then."""
    for name in _INSTALLED:
        (folder / name).unlink()
    build_driver_files(folder, machine)


@cache
def shared_files(machine: str) -> Path:
    """The files that all tests of this process share for a machine."""
    folder = Path(tempfile.mkdtemp(prefix="fake-roots-"))
    atexit.register(shutil.rmtree, folder)
    fresh = FakeMachine.open(machine)
    build_sysfs(folder, fresh)
    build_driver_files(folder, fresh)
    _as_built[folder] = _contents(folder)
    return folder


_as_built: dict[Path, dict[str, str | bytes]] = {}


def changed_files() -> list[str]:
    """What a test has changed although others share it."""
    return [
        f"{folder}/{name}"
        for folder, before in _as_built.items()
        for name in sorted(dict(before.items() ^ _contents(folder).items()))
    ]


def _contents(folder: Path) -> dict[str, str | bytes]:
    """What lies below a folder: of each link its target, of each file its content."""
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else (path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    }
