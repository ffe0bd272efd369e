"""A GPU with its audio and USB functions below a bridge, all in one IOMMU group, and a kernel for them."""

import errno
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubeletplugin.devices.host.kernel import Kernel
from kubeletplugin.devices.vfio.binder import GroupBinder
from kubeletplugin.devices.vfio.modules import VfioAlias
from tests.driver.hardware.pci_trees import PciTree, at
from tests.plugin import User

NO_OVERRIDE = "(null)"


class Killed(BaseException):
    """Stands for the end of the process at this point: nothing in the code may catch it."""


@dataclass
class PlainKernel:
    """Binds functions of a ``PciTree`` as the kernel does. Drivers are loaded once their folder is there.

    ``takes`` says which driver takes a function by itself. ``fails`` and ``late`` name parts of paths with
    what happens to writes there: an errno, or a time-out after which the driver still has the lock of the
    function. Writes to ``ignores`` do nothing. ``rescans``: somebody has functions offered to all drivers
    whenever one has lost its own. ``refuses`` are functions that a driver's probe refuses. ``dies_at`` is the
    number of the write before which the process ends, ``dies_after`` that after which it does.
    """

    root: Path
    takes: dict[str, str] = field(default_factory=dict)
    fails: dict[str, int] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)
    refuses: set[tuple[str, str]] = field(default_factory=set)
    modules: dict[str, str] = field(default_factory=lambda: {"vfio_pci": "vfio-pci"})
    ignores: str = "nothing"
    rescans: bool = False
    dies_at: int | None = None
    dies_after: int | None = None
    told: list[tuple[str, str]] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)
    writes: int = 0

    def boot(self) -> None:
        """Give functions their files, and their own drivers."""
        for driver in set(self.takes.values()):
            self._load(driver)
        for folder in (self.root / "bus/pci/devices").iterdir():
            if not (folder / "driver_override").exists():
                (folder / "driver_override").write_text(f"{NO_OVERRIDE}\n")
            self._probe(folder.name)

    def write(self, path: Path, text: str, deadline_seconds: float) -> None:
        assert deadline_seconds > 0
        self.writes += 1
        if self.dies_at == self.writes:
            raise Killed
        relative = path.relative_to(self.root).as_posix()
        self.told.append((relative, text))
        for words, number in self.fails.items():
            if words in f"{relative} {text}":
                raise OSError(number, "the kernel refuses")
        if self.ignores not in f"{relative} {text}":
            self._act(path, relative, text)
        if self.dies_after == self.writes:
            raise Killed

    def read(self, path: Path, deadline_seconds: float) -> str:
        assert deadline_seconds > 0
        if path.parent.name in self.waiting:
            raise TimeoutError
        return path.read_text()

    def load_module(self, name: str, deadline_seconds: float) -> None:
        assert deadline_seconds > 0
        driver = self.modules.get(name.replace("-", "_"))
        if driver is None:
            raise FileNotFoundError(errno.ENOENT, f"Module {name} not found")
        self._load(driver)
        module = self.root / "module" / name / "drivers" / f"pci:{driver}"
        module.mkdir(parents=True, exist_ok=True)

    def let_go(self) -> None:
        """Those who used functions have ended: what waited for them goes on."""
        self.waiting.clear()
        self.late.clear()

    def driver(self, address: str) -> str:
        """The driver of a function, empty for none."""
        link = self.root / "bus/pci/devices" / address / "driver"
        return link.readlink().name if link.is_symlink() else ""

    def override(self, address: str) -> str:
        """Its ``driver_override``, empty for none."""
        name = (self.root / "bus/pci/devices" / address / "driver_override").read_text().rstrip("\n")
        return "" if name == NO_OVERRIDE else name

    def give(self, address: str, driver: str, override: str | None = None) -> None:
        """Somebody else gives a function a driver, or takes it from all."""
        link = self.root / "bus/pci/devices" / address / "driver"
        link.unlink(missing_ok=True)
        if driver:
            self._load(driver)
            link.symlink_to(f"../../../../bus/pci/drivers/{driver}")
        if override is not None:
            (link.parent / "driver_override").write_text(f"{override or NO_OVERRIDE}\n")

    def _act(self, path: Path, relative: str, text: str) -> None:
        if path.name == "driver_override":
            if path.parent.name in self.waiting:
                raise TimeoutError
            path.write_text(f"{text.strip() or NO_OVERRIDE}\n")
        elif path.name == "unbind":
            if self.driver(text) != path.parent.name:
                raise OSError(errno.ENODEV, "No such device")
            self.give(text, "")
            if text in self.late:
                self.waiting[text] = relative
                raise TimeoutError
            if self.rescans:
                self._probe(text)
        else:
            assert relative == "bus/pci/drivers_probe"
            self._probe(text)

    def _probe(self, address: str) -> None:
        if self.driver(address) or address in self.waiting:
            return
        driver = self.override(address) or self.takes.get(address, "")
        if driver and (address, driver) not in self.refuses and (self._of(driver)).exists():
            self.give(address, driver)

    def _load(self, driver: str) -> None:
        self._of(driver).mkdir(parents=True, exist_ok=True)

    def _of(self, driver: str) -> Path:
        return self.root / "bus/pci/drivers" / driver


GPU, AUDIO, USB, BRIDGE = "0000:81:00.0", "0000:81:00.1", "0000:81:00.2", "0000:80:01.0"
FUNCTIONS = (GPU, AUDIO, USB)
GROUP = 7
CLEAN = {"kept": "by the kind"}
"""The record of an unchanged group."""

OWN_DRIVERS = {GPU: "nvidia", AUDIO: "snd_hda_intel", USB: "xhci_hcd", BRIDGE: "pcieport"}


class GroupScene:
    """The group, what was noted of it, and who uses its functions (``users``, by address)."""

    def __init__(self, root: Path) -> None:
        self.tree = PciTree(root)
        self.tree.function(BRIDGE, "0x8086", "0x352a", "0x060400", group=GROUP)
        self.tree.function(GPU, group=GROUP)
        self.tree.function(AUDIO, device="0x22f7", kind="0x040300", group=GROUP)
        self.tree.function(USB, device="0x1ad8", kind="0x0c0330", group=GROUP)
        self.kernel = PlainKernel(root, takes=dict(OWN_DRIVERS))
        self.kernel.boot()
        self.users: dict[str, list[User]] = {}
        self.aliases: tuple[VfioAlias, ...] = ()
        self.record: Mapping[str, Any] = CLEAN
        self.steps: list[str] = []

    def binder(self, kernel: Kernel | None = None) -> GroupBinder:
        """A binder, as a process that has just started would have it."""

        def users(function: Any) -> Sequence[User]:
            return self.users.get(str(function.pci), [])

        return GroupBinder(kernel or self.kernel, self.tree.root, lambda: self.aliases, users)

    def note(self, step: str, record: Mapping[str, Any]) -> None:
        """As the journal does: what was noted is what the next process finds."""
        self.steps.append(step)
        self.record = json.loads(json.dumps(record))

    def assert_as_before(self) -> None:
        """Each function has its own driver, no override is left, and the record says so."""
        assert (self.drivers(), self.overrides(), self.record) == (OWN_DRIVERS, {}, CLEAN)

    def bind(self, *gpus: str) -> None:
        """Bind the group; what it answers is kept."""
        asked = [at(gpu) for gpu in gpus or (GPU,)]
        self.record = self.binder().bind(asked[0], asked, self.record, self.note)

    def restore(self) -> None:
        """Give the group back."""
        self.record = self.binder().restore(self.record, self.note)

    def drivers(self) -> dict[str, str]:
        """The driver of each function."""
        return {address: self.kernel.driver(address) for address in OWN_DRIVERS}

    def overrides(self) -> dict[str, str]:
        """The override of each function that has one."""
        found = {address: self.kernel.override(address) for address in OWN_DRIVERS}
        return {address: name for address, name in found.items() if name}


BOUND = {GPU: "vfio-pci", AUDIO: "vfio-pci", USB: "vfio-pci", BRIDGE: "pcieport"}
