"""What any kernel behind the port does, real or pretended: cases with plain asserts, which need no pytest.

So they run in a guest, too, on a real kernel and emulated devices. Each case leaves all as it found it.
"""

import errno
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

LONG = 30.0
"""How long it waits for what comes, in seconds: an emulated machine is slow."""


class Kernel(Protocol):
    """The port, as far as the cases use it."""

    def write(self, path: Path, text: str, deadline_seconds: float) -> None:
        """Write to a file of sysfs."""

    def read(self, path: Path, deadline_seconds: float) -> str:
        """Read a file that the kernel may withhold."""

    def load_module(self, name: str, deadline_seconds: float) -> None:
        """Have a module loaded."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A kernel and functions to try it on, by their addresses.

    ``endpoint`` is bound to ``driver``, which lets go of it at once, and an IOMMU guards it. ``bridge`` is
    any bridge, ``physical`` a function with SR-IOV and no virtual functions, bound to a driver that can make
    them; None where the machine has none. ``vfio_open`` holds the endpoint's vfio device open, bound to
    vfio-pci, as a virtual machine does, till what it returns is called. ``soon_seconds`` is how long a case
    waits for what never comes: a call has to have begun by then.
    """

    kernel: Kernel
    sysfs: Path
    endpoint: str
    driver: str
    bridge: str | None = None
    physical: str | None = None
    vfio_open: Callable[[], Callable[[], None]] | None = None
    soon_seconds: float = 0.3

    def of(self, pci: str, name: str) -> Path:
        """A file of a function."""
        return self.sysfs / "bus/pci/devices" / pci / name

    def of_driver(self, driver: str, name: str) -> Path:
        """A file of a driver."""
        return self.sysfs / "bus/pci/drivers" / driver / name

    def write(self, path: Path, text: str) -> None:
        """Write, and wait for as long as it may take."""
        self.kernel.write(path, text, LONG)

    def refuses(self, path: Path, text: str) -> int:
        """The number with which the kernel refuses a write; 0 where it does not."""
        try:
            self.write(path, text)
        except OSError as error:
            return error.errno or -1
        return 0

    def override(self, pci: str) -> str:
        """What ``driver_override`` says."""
        return self.kernel.read(self.of(pci, "driver_override"), LONG)

    def driver_of(self, pci: str) -> str | None:
        """The driver that a function is bound to."""
        link = self.of(pci, "driver")
        return link.readlink().name if link.is_symlink() else None

    def group_of(self, pci: str) -> str:
        """The number of a function's IOMMU group."""
        return self.of(pci, "iommu_group").readlink().name

    @property
    def probe_file(self) -> Path:
        """The file that has the bus look for a driver of a function."""
        return self.sysfs / "bus/pci/drivers_probe"

    @contextmanager
    def on_vfio(self) -> Iterator[None]:
        """The endpoint is bound to vfio-pci meanwhile."""
        self.kernel.load_module("vfio-pci", LONG)
        self.write(self.of_driver(self.driver, "unbind"), self.endpoint)
        self.write(self.of(self.endpoint, "driver_override"), "vfio-pci\n")
        self.write(self.probe_file, self.endpoint)
        try:
            yield
        finally:
            if self.driver_of(self.endpoint) == "vfio-pci":
                self.write(self.of_driver("vfio-pci", "unbind"), self.endpoint)
            self.home()

    def home(self) -> None:
        """Bind the endpoint to its own driver again."""
        self.write(self.of(self.endpoint, "driver_override"), "\n")
        self.write(self.probe_file, self.endpoint)


def driver_override_is_read_as_it_was_written(scene: Scene) -> None:
    assert scene.override(scene.endpoint) == "(null)\n"
    for text in ("vfio-pci", "vfio-pci\n"):
        scene.write(scene.of(scene.endpoint, "driver_override"), text)
        assert scene.override(scene.endpoint) == "vfio-pci\n"
    assert scene.driver_of(scene.endpoint) == scene.driver
    scene.write(scene.of(scene.endpoint, "driver_override"), "\n")
    assert scene.override(scene.endpoint) == "(null)\n"


def no_bytes_clear_no_driver_override(scene: Scene) -> None:
    scene.write(scene.of(scene.endpoint, "driver_override"), "vfio-pci")
    scene.write(scene.of(scene.endpoint, "driver_override"), "")
    assert scene.override(scene.endpoint) == "vfio-pci\n"
    scene.write(scene.of(scene.endpoint, "driver_override"), "\n")


def a_driver_override_has_room_for_a_page(scene: Scene) -> None:
    file = scene.of(scene.endpoint, "driver_override")
    assert scene.refuses(file, "x" * 4095) == errno.EINVAL
    assert scene.override(scene.endpoint) == "(null)\n"
    assert scene.refuses(file, "x" * 4094) == 0
    scene.write(file, "\n")


def vfio_takes_a_function_by_override_and_probe(scene: Scene) -> None:
    with scene.on_vfio():
        assert scene.driver_of(scene.endpoint) == "vfio-pci"
        assert scene.of_driver("vfio-pci", scene.endpoint).is_symlink()
        assert not scene.of_driver(scene.driver, scene.endpoint).is_symlink()
        assert any(scene.of(scene.endpoint, "vfio-dev").iterdir())
        assert (scene.sysfs / "class/vfio" / scene.group_of(scene.endpoint)).exists()
    assert scene.driver_of(scene.endpoint) == scene.driver
    assert not scene.of(scene.endpoint, "vfio-dev").exists()
    assert not (scene.sysfs / "class/vfio" / scene.group_of(scene.endpoint)).exists()


def a_function_is_in_the_list_of_its_group(scene: Scene) -> None:
    group = scene.sysfs / "kernel/iommu_groups" / scene.group_of(scene.endpoint)
    assert scene.endpoint in {one.name for one in (group / "devices").iterdir()}
    assert (group / "devices" / scene.endpoint).resolve() == scene.of(scene.endpoint, "").resolve()


def a_function_that_has_a_driver_is_bound_to_no_other(scene: Scene) -> None:
    scene.kernel.load_module("vfio-pci", LONG)
    bind = scene.of_driver("vfio-pci", "bind")
    assert scene.refuses(bind, scene.endpoint) == errno.ENODEV, "vfio-pci matches nothing by itself"
    scene.write(scene.of(scene.endpoint, "driver_override"), "vfio-pci")
    assert scene.refuses(bind, scene.endpoint) == errno.EBUSY
    assert scene.refuses(scene.probe_file, scene.endpoint) == 0
    assert scene.driver_of(scene.endpoint) == scene.driver
    scene.write(scene.of(scene.endpoint, "driver_override"), "\n")


def only_the_driver_that_has_a_function_lets_go_of_it(scene: Scene) -> None:
    scene.kernel.load_module("vfio-pci", LONG)
    assert scene.refuses(scene.of_driver("vfio-pci", "unbind"), scene.endpoint) == errno.ENODEV
    assert scene.refuses(scene.of_driver(scene.driver, "unbind"), "0000:ff:1f.7") == errno.ENODEV
    assert scene.driver_of(scene.endpoint) == scene.driver


def a_function_without_a_driver_has_no_files_of_one(scene: Scene) -> None:
    scene.write(scene.of(scene.endpoint, "driver/unbind"), scene.endpoint)
    assert scene.driver_of(scene.endpoint) is None
    assert scene.refuses(scene.of(scene.endpoint, "driver/unbind"), scene.endpoint) == errno.ENOENT
    assert scene.refuses(scene.of_driver(scene.driver, "unbind"), scene.endpoint) == errno.ENODEV
    scene.home()
    assert scene.driver_of(scene.endpoint) == scene.driver


def an_override_keeps_the_own_driver_away(scene: Scene) -> None:
    scene.write(scene.of_driver(scene.driver, "unbind"), scene.endpoint)
    scene.write(scene.of(scene.endpoint, "driver_override"), "no such driver")
    assert scene.refuses(scene.probe_file, scene.endpoint) == 0
    assert scene.refuses(scene.of_driver(scene.driver, "bind"), scene.endpoint) == errno.ENODEV
    assert scene.driver_of(scene.endpoint) is None
    scene.home()
    assert scene.driver_of(scene.endpoint) == scene.driver


def what_is_not_there_is_refused(scene: Scene) -> None:
    for text in ("0000:ff:1f.7", "garbage", ""):
        if text:
            assert scene.refuses(scene.probe_file, text) == errno.ENODEV
    assert scene.refuses(scene.of("0000:ff:1f.7", "driver_override"), "vfio-pci") == errno.ENOENT
    assert scene.refuses(scene.of_driver("no-such-driver", "bind"), scene.endpoint) == errno.ENOENT
    assert scene.refuses(scene.of(scene.endpoint, "vendor"), "0x10de") == errno.EACCES


def a_module_that_is_not_there_is_refused(scene: Scene) -> None:
    try:
        scene.kernel.load_module("no-such-module", LONG)
    except OSError as error:
        assert error.errno == errno.ENOENT
    else:
        raise AssertionError("a module that there is not was loaded")


def a_module_is_loaded_once_more(scene: Scene) -> None:
    scene.kernel.load_module("vfio-pci", LONG)
    scene.kernel.load_module("vfio_pci", LONG)
    assert (scene.sysfs / "module/vfio_pci").is_dir()
    assert scene.of_driver("vfio-pci", "bind").exists()


def no_bridge_goes_to_vfio(scene: Scene) -> None:
    if scene.bridge is None:
        return
    scene.kernel.load_module("vfio-pci", LONG)
    driver = scene.driver_of(scene.bridge)
    if driver is not None:
        scene.write(scene.of_driver(driver, "unbind"), scene.bridge)
    scene.write(scene.of(scene.bridge, "driver_override"), "vfio-pci")
    assert scene.refuses(scene.probe_file, scene.bridge) == 0
    assert scene.refuses(scene.of_driver("vfio-pci", "bind"), scene.bridge) == errno.EINVAL
    assert scene.driver_of(scene.bridge) is None
    scene.write(scene.of(scene.bridge, "driver_override"), "\n")
    if driver is not None:
        scene.write(scene.probe_file, scene.bridge)
    assert scene.driver_of(scene.bridge) == driver


def an_unbind_waits_for_whoever_has_the_function_open(scene: Scene) -> None:
    if scene.vfio_open is None:
        return
    with scene.on_vfio():
        soon, unbind = scene.soon_seconds, scene.of_driver("vfio-pci", "unbind")
        close = scene.vfio_open()
        try:
            _times_out(lambda: scene.kernel.write(unbind, scene.endpoint, soon))
            assert scene.driver_of(scene.endpoint) is None, "the link goes first"
            override = scene.of(scene.endpoint, "driver_override")
            _times_out(lambda: scene.kernel.read(override, soon))
            _times_out(lambda: scene.kernel.write(override, "late\n", soon))
            assert scene.refuses(scene.probe_file, scene.endpoint) == 0
        finally:
            close()
        end = time.monotonic() + LONG
        while scene.override(scene.endpoint) != "late\n":  # a read that was begun before may answer first
            assert time.monotonic() < end, "what was begun is done once it can be"
        assert scene.driver_of(scene.endpoint) is None


def virtual_functions_come_and_go(scene: Scene) -> None:
    if scene.physical is None:
        return
    number = scene.of(scene.physical, "sriov_numvfs")
    total = int(scene.of(scene.physical, "sriov_totalvfs").read_text())
    assert scene.refuses(number, str(total + 1)) == errno.ERANGE
    assert scene.refuses(number, "many") == errno.EINVAL
    scene.write(number, "1")
    virtual = scene.of(scene.physical, "virtfn0").readlink().name
    assert scene.of(virtual, "physfn").readlink().name == scene.physical
    assert scene.group_of(virtual) != scene.group_of(scene.physical)
    assert scene.kernel.read(number, LONG) == "1\n"
    assert scene.refuses(number, "1") == 0
    assert total == 1 or scene.refuses(number, "2") == errno.EBUSY
    scene.write(number, "0")
    assert not scene.of(scene.physical, "virtfn0").is_symlink()
    assert not scene.of(virtual, "vendor").exists()


def a_physical_function_without_a_driver_makes_none(scene: Scene) -> None:
    if scene.physical is None:
        return
    driver = scene.driver_of(scene.physical)
    assert driver is not None
    number = scene.of(scene.physical, "sriov_numvfs")
    scene.write(scene.of_driver(driver, "unbind"), scene.physical)
    assert scene.refuses(number, "1") == errno.ENOENT
    assert scene.refuses(number, "0") == 0
    scene.write(scene.probe_file, scene.physical)
    assert scene.driver_of(scene.physical) == driver


def vfio_takes_no_function_that_has_virtual_ones(scene: Scene) -> None:
    if scene.physical is None:
        return
    driver, override = scene.driver_of(scene.physical), scene.override(scene.physical)
    assert driver is not None
    scene.kernel.load_module("vfio-pci", LONG)
    scene.write(scene.of(scene.physical, "sriov_numvfs"), "1")
    scene.write(scene.of_driver(driver, "unbind"), scene.physical)
    assert scene.of(scene.physical, "virtfn0").is_symlink(), "they stay"
    scene.write(scene.of(scene.physical, "driver_override"), "vfio-pci")
    assert scene.refuses(scene.probe_file, scene.physical) == 0
    assert scene.driver_of(scene.physical) is None
    scene.write(scene.of(scene.physical, "driver_override"), override.replace("(null)", ""))
    scene.write(scene.probe_file, scene.physical)
    scene.write(scene.of(scene.physical, "sriov_numvfs"), "0")
    assert scene.driver_of(scene.physical) == driver


CASES: tuple[Callable[[Scene], None], ...] = (
    driver_override_is_read_as_it_was_written,
    no_bytes_clear_no_driver_override,
    a_driver_override_has_room_for_a_page,
    vfio_takes_a_function_by_override_and_probe,
    a_function_is_in_the_list_of_its_group,
    a_function_that_has_a_driver_is_bound_to_no_other,
    only_the_driver_that_has_a_function_lets_go_of_it,
    a_function_without_a_driver_has_no_files_of_one,
    an_override_keeps_the_own_driver_away,
    what_is_not_there_is_refused,
    a_module_that_is_not_there_is_refused,
    a_module_is_loaded_once_more,
    no_bridge_goes_to_vfio,
    an_unbind_waits_for_whoever_has_the_function_open,
    virtual_functions_come_and_go,
    a_physical_function_without_a_driver_makes_none,
    vfio_takes_no_function_that_has_virtual_ones,
)


def run(scene: Scene) -> int:
    """Run all cases and say how each went; the number of those that failed."""
    failed = 0
    for case in CASES:
        try:
            case(scene)
        except Exception:  # noqa: BLE001 - the other cases are run all the same
            failed += 1
            sys.stdout.write(f"FAILED {case.__name__}\n{traceback.format_exc()}\n")
        else:
            sys.stdout.write(f"passed {case.__name__}\n")
    return failed


def _times_out(call: Callable[[], object]) -> None:
    try:
        call()
    except TimeoutError:
        return
    raise AssertionError("the kernel answered, and should have waited")
