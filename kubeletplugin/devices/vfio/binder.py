"""Binds an IOMMU group to vfio and gives it back, so that any step can be the last before a crash.

What is done next follows from what the kernel shows, never from how far somebody believes to have come. What
was there before the first change is the only thing that has to be remembered, so that is written down first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from driver.errors import ClaimBlocked
from driver.hardware.pci import read_text
from driver.hardware.pci_view import function_folder, iommu_group_of
from driver.process.log import get_logger
from kubeletplugin.devices.vfio.aliases import VFIO_PCI, VFIO_PCI_MODULE, VfioAlias, best_module
from kubeletplugin.devices.vfio.failures import FunctionInDoubt, in_use, moved
from kubeletplugin.devices.vfio.function_files import Deadlines, FunctionFiles, Users
from kubeletplugin.devices.vfio.modules import load_module
from kubeletplugin.devices.vfio.plan import functions_to_bind
from kubeletplugin.devices.vfio.record import Done, FunctionRecord, GroupRecord
from kubeletplugin.devices.vfio.unbind import give_back

if TYPE_CHECKING:
    from collections.abc import Sequence

    from driver.nvml.pci_address import PciAddress
    from kubeletplugin.claims.journal.entry import Record
    from kubeletplugin.devices.host.kernel import Kernel

Note = Callable[[str, "Record"], None]
"""Writes down the record of the device at a step; see ``kubeletplugin.devices.kinds.kind.Note``."""

_log = get_logger(__name__)


class GroupBinder:
    """Binds and restores groups on one node. Callers hold the locks of the claim and of its GPUs.

    ``aliases`` gives those of the host's modules (``read_aliases``), ``users`` the processes that have a
    function open (``FunctionUsers``).
    """

    def __init__(
        self,
        kernel: Kernel,
        sysfs_root: Path,
        aliases: Callable[[], tuple[VfioAlias, ...]],
        users: Users,
        deadlines: Deadlines | None = None,
    ) -> None:
        self._kernel = kernel
        self._sysfs_root = sysfs_root
        self._aliases = aliases
        self._users = users
        self._deadlines = deadlines or Deadlines()

    def bind(self, pci: PciAddress, gpus: Collection[PciAddress], record: Record, note: Note) -> Record:
        """Have the whole group of a function bound to vfio; the record to keep then.

        ``gpus`` are all GPUs that may be given away with it. ``record`` is what an earlier try left, empty
        for none: a try goes on where the one before it ended. ``note`` is called before each change and
        after the last. Functions that a vfio driver has already are left alone, and not given back either.

        Raises NodeIncomplete, ClaimRefused, ClaimBlocked and its kinds in ``failures``: everything is as
        before then. After FunctionInDoubt and StorageError it is not, since the kernel, or the journal,
        allows no change: another ``bind`` goes on, or ``restore`` undoes it.
        """
        before = GroupRecord.read(record)
        functions = functions_to_bind(pci, iommu_group_of(self._sysfs_root, pci), gpus)
        modules = self._modules([one.pci for one in functions if not one.on_vfio])
        drivers = {module: self._loaded_driver(module) for module in dict.fromkeys(modules.values())}
        # Loading modules may have bound functions that had no driver (vfio-pci's parameter ``ids``).
        functions = functions_to_bind(pci, iommu_group_of(self._sysfs_root, pci), gpus)
        writing = _Writing(before, note)
        for function in functions:
            if before.of(function.pci) is None and not function.on_vfio:
                vfio = drivers[modules[function.pci]] if function.pci in modules else VFIO_PCI
                files = self._files(function.pci)
                override = files.override()
                writing.add(FunctionRecord(str(function.pci), function.driver or "", override, vfio))
        try:
            for one in writing.record.functions:
                if self._files(one.address).is_there:
                    self._bind_one(one, writing)
        except FunctionInDoubt:
            raise
        except ClaimBlocked as error:
            self._undo(writing, error)
            raise
        writing.step(f"{pci} is bound to vfio", writing.record)
        return writing.record.written

    def restore(self, record: Record, note: Note) -> Record:
        """Give every function of the record back, the last first; the record to keep then.

        A function that somebody else gave another driver meanwhile is left as it is; the log says so. What
        cannot be given back does not keep the others from it. Raises ClaimBlocked and its kinds in
        ``failures``, StorageError; it can be called again then.
        """
        writing = _Writing(GroupRecord.read(record), note)
        first: ClaimBlocked | None = None
        for one in reversed(writing.record.functions):
            if not one.may_have_changed:
                continue
            try:
                give_back(one, self._files(one.address), partial(writing.done, one))
            except ClaimBlocked as error:
                _log.warning("function not given back", function=one.pci, error=error.logged)
                first = first or error
                continue
            writing.done(one, "given-back")
        if first is not None:
            raise first
        return writing.record.written

    def _bind_one(self, one: FunctionRecord, writing: _Writing) -> None:
        files = self._files(one.address)
        override = files.override()
        driver = files.driver()
        if driver not in {"", one.driver, one.vfio}:
            raise moved(one.address, driver)
        if driver != one.vfio:
            if driver and (users := files.users()):
                raise in_use(one.address, driver, users)
            if override != one.vfio:
                writing.done(one, "overriding")
                files.set_override(one.vfio)
            if driver:
                writing.done(one, "unbinding")
                files.unbind(driver, one.vfio)
            writing.done(one, "probing")
            files.probe(one.vfio)
        writing.record = writing.record.put(replace(one, done="bound"))

    def _undo(self, writing: _Writing, cause: ClaimBlocked) -> None:
        try:
            writing.record = GroupRecord.read(self.restore(writing.record.written, writing.note))
        except ClaimBlocked as error:
            _log.error("group half bound", cause=cause.logged, error=error.logged)

    def _modules(self, functions: Sequence[PciAddress]) -> dict[PciAddress, str]:
        """The module for each function."""
        if not functions:
            return {}
        aliases = self._aliases()  # a file of a megabyte is read for them
        folders = {pci: function_folder(self._sysfs_root, pci) for pci in functions}
        return {pci: best_module(aliases, read_text(folder / "modalias")) for pci, folder in folders.items()}

    def _loaded_driver(self, module: str) -> str:
        """The driver that a module brings, loaded; raises NodeIncomplete, ClaimBlocked."""
        load_module(self._kernel, module, self._deadlines.module, "; passthrough needs vfio-pci")
        return self._driver_of(module)

    def _driver_of(self, module: str) -> str:
        """The PCI driver of a loaded module; drivers may be named otherwise than their modules."""
        try:
            listed = sorted(
                path.name for path in (self._sysfs_root / "module" / module / "drivers").iterdir()
            )
        except OSError:
            listed = []
        for name in listed:
            if name.startswith("pci:"):
                return name.removeprefix("pci:")
        return VFIO_PCI if module == VFIO_PCI_MODULE else module

    def _files(self, pci: PciAddress) -> FunctionFiles:
        return FunctionFiles(self._kernel, self._sysfs_root, pci, self._users, self._deadlines)


class _Writing:
    """The record as it is, and how it is written down."""

    def __init__(self, record: GroupRecord, note: Note) -> None:
        self.record = record
        self.note = note

    def add(self, function: FunctionRecord) -> None:
        """Remember a function that nothing was done to yet."""
        self.record = self.record.put(function)

    def done(self, function: FunctionRecord, done: Done) -> None:
        """Write down what is about to be done to a function, or that it is over."""
        self.step(f"{done} {function.pci}", self.record.put(replace(function, done=done)))

    def step(self, step: str, record: GroupRecord) -> None:
        """Write a record down; it counts from then on."""
        self.note(step, record.written)
        self.record = record
