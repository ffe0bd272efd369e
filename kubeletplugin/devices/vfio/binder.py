"""Binds an IOMMU group to vfio and gives it back; the plugin may crash after any step.

The next step always follows from what the kernel shows, never from a record of earlier steps. Only the state
before the first change has to be remembered, so it is journaled first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from driver.errors import ClaimBlocked, ClaimRefused, NodeIncomplete
from driver.hardware.functions import IommuGroup, PciFunction
from driver.hardware.pci import read_text
from driver.hardware.pci_view import function_folder, iommu_group_of
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.claims.journal.entry import Record
from kubeletplugin.devices.host.kernel import Kernel
from kubeletplugin.devices.vfio.failures import FunctionInDoubt, FunctionNotMoved, in_use, moved
from kubeletplugin.devices.vfio.function_files import Deadlines, FunctionFiles, Users
from kubeletplugin.devices.vfio.modules import VFIO_PCI, VFIO_PCI_MODULE, VfioAlias, best_module, load_module

FUNCTIONS = "functions"
"""The key of the record that holds the functions; the other keys belong to the kind."""

Done = Literal["seen", "overriding", "unbinding", "probing", "bound", "giving-back", "given-back"]
_DONE: tuple[str, ...] = get_args(Done)
_UNCHANGED: frozenset[str] = frozenset({"seen", "given-back"})


@dataclass(frozen=True, slots=True)
class FunctionRecord:
    """One function: its former state, the driver it gets, and the last change that was started."""

    pci: str
    # Its driver and its driver_override before the first change, empty for none.
    driver: str
    override: str
    # The driver that it gets.
    vfio: str
    # Journaled before the change that it names: each change up to it may have happened, and none after it.
    done: Done = "seen"

    @property
    def address(self) -> PciAddress:
        """Its PCI address."""
        return PciAddress.parse(self.pci)

    @property
    def may_have_changed(self) -> bool:
        """Whether its driver or its override may differ from its former state."""
        return self.done not in _UNCHANGED


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """The functions of a group in the order in which they are bound, and the rest of the device's record."""

    functions: tuple[FunctionRecord, ...]
    rest: Record

    @classmethod
    def read(cls, record: Record) -> GroupRecord:
        """Read a device's record. Functions that cannot be parsed count as never changed.

        A newer version may have added fields and words for ``done``; unknown words count as changes.
        """
        rest = {key: value for key, value in record.items() if key != FUNCTIONS}
        return cls(tuple(_functions(record.get(FUNCTIONS))), rest)

    def of(self, pci: PciAddress) -> FunctionRecord | None:
        """The record of one function."""
        return next((one for one in self.functions if one.pci == str(pci)), None)

    def put(self, function: FunctionRecord) -> GroupRecord:
        """A copy with this function in the place of its former record, or at the end."""
        if self.of(function.address) is None:
            return replace(self, functions=(*self.functions, function))
        kept = tuple(function if one.pci == function.pci else one for one in self.functions)
        return replace(self, functions=kept)

    @property
    def written(self) -> Record:
        """The record as JSON; without its functions if none of them may have changed."""
        if not any(one.may_have_changed for one in self.functions):
            return dict(self.rest)
        return {**self.rest, FUNCTIONS: [asdict(one) for one in self.functions]}


def _functions(listed: Any) -> Iterator[FunctionRecord]:
    names = [field.name for field in fields(FunctionRecord)]
    for one in listed if isinstance(listed, list) else ():
        try:
            values = {name: str(one[name]) for name in names}
            if values["done"] not in _DONE:
                values["done"] = "giving-back"
            function = FunctionRecord(**values)  # type: ignore[arg-type] # the word was looked up above
            PciAddress.parse(function.pci)
        except (KeyError, TypeError, ValueError):
            continue
        yield function


Note = Callable[[str, Record], None]
"""Journals the record of the device at a step; see ``kubeletplugin.devices.kinds.kind.Note``."""

_log = get_logger(__name__)


class GroupBinder:
    """Binds and restores groups on one node. Callers hold the locks of the claim and of its GPUs.

    ``aliases`` returns the aliases of the host's modules (``read_aliases``), ``users`` the processes that
    have a function open (``FunctionUsers``).
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
        """Bind the whole group of a function to vfio; returns the record to keep.

        ``gpus`` are all GPUs that may be given away with it. ``record`` is what an earlier try left, empty
        if there was none; a try continues where the previous one ended. ``note`` is called before each change
        and after the last. Functions that a vfio driver has already are left alone, and ``restore`` does not
        touch them either.

        Raises NodeIncomplete, ClaimRefused, and ClaimBlocked or one of ``failures``; every function then has
        its former driver again. The exceptions are FunctionInDoubt and StorageError, when the kernel or the
        journal allows no change: call ``bind`` again to continue, or ``restore`` to undo it.
        """
        before = GroupRecord.read(record)
        # The first check comes before anything is changed, modules included.
        functions = functions_to_bind(pci, iommu_group_of(self._sysfs_root, pci), gpus)
        modules = self._modules([one.pci for one in functions if not one.on_vfio])
        drivers = {module: self._loaded_driver(module) for module in dict.fromkeys(modules.values())}
        # Read the group again: a module that is loaded may bind functions that had no driver, as vfio-pci
        # does for those in its parameter ``ids``.
        functions = functions_to_bind(pci, iommu_group_of(self._sysfs_root, pci), gpus)
        writer = _RecordWriter(before, note)
        for function in functions:
            if before.of(function.pci) is None and not function.on_vfio:
                # A function that was on vfio at the first reading and is not any more has no module here.
                vfio = drivers[modules[function.pci]] if function.pci in modules else VFIO_PCI
                files = self._files(function.pci)
                override = files.override()
                writer.add(FunctionRecord(str(function.pci), function.driver or "", override, vfio))
        try:
            for one in writer.record.functions:
                # A function of an earlier try may have left the bus since.
                if self._files(one.address).is_there:
                    self._bind_one(one, writer)
        except FunctionInDoubt:
            # The kernel still works on this function: undoing now would wait for the same lock.
            raise
        except ClaimBlocked as error:
            self._undo(writer, error)
            raise
        writer.step(f"{pci} is bound to vfio", writer.record)
        return writer.record.written

    def restore(self, record: Record, note: Note) -> Record:
        """Give each function its former driver back, the last one first; returns the record to keep.

        A function that somebody else bound to another driver meanwhile is left as it is and logged. If one
        function cannot be given back, the others still are. Raises ClaimBlocked or one of ``failures``, and
        StorageError; it can then be called again.
        """
        writer = _RecordWriter(GroupRecord.read(record), note)
        first: ClaimBlocked | None = None
        # In the other order: the GPU, which was taken first, comes back last.
        for one in reversed(writer.record.functions):
            # It was recorded, but nothing was done to it.
            if not one.may_have_changed:
                continue
            try:
                _give_back(one, self._files(one.address), partial(writer.done, one))
            except ClaimBlocked as error:
                _log.warning(
                    "cannot give a function back to its driver yet", function=one.pci, error=error.logged
                )
                first = first or error
                continue
            writer.done(one, "given-back")
        if first is not None:
            raise first
        return writer.record.written

    def _bind_one(self, one: FunctionRecord, writer: _RecordWriter) -> None:
        files = self._files(one.address)
        override = files.override()
        driver = files.driver()
        if driver not in {"", one.driver, one.vfio}:
            raise moved(one.address, driver)
        if driver != one.vfio:
            # The kernel waits without limit for the NVIDIA driver to let go of a GPU that is open, so nothing
            # is unbound while a process has it open.
            if driver and (users := files.users()):
                raise in_use(one.address, driver, users)
            # driver_override comes before unbind: once the function has no driver, any module that is loaded
            # may take it unless the override names another one.
            if override != one.vfio:
                writer.done(one, "overriding")
                files.set_override(one.vfio)
            if driver:
                writer.done(one, "unbinding")
                files.unbind(driver, one.vfio)
            writer.done(one, "probing")
            files.probe(one.vfio)
        # Not journaled by itself: the next step's record has it, and a crash before that repeats nothing.
        writer.record = writer.record.put(replace(one, done="bound"))

    def _undo(self, writer: _RecordWriter, cause: ClaimBlocked) -> None:
        try:
            writer.record = GroupRecord.read(self.restore(writer.record.written, writer.note))
        except ClaimBlocked as error:
            _log.error("an IOMMU group is bound only in part", cause=cause.logged, error=error.logged)

    def _modules(self, functions: Sequence[PciAddress]) -> dict[PciAddress, str]:
        """The module for each function."""
        if not functions:
            return {}
        aliases = self._aliases()  # reads a file of a megabyte
        folders = {pci: function_folder(self._sysfs_root, pci) for pci in functions}
        return {pci: best_module(aliases, read_text(folder / "modalias")) for pci, folder in folders.items()}

    def _loaded_driver(self, module: str) -> str:
        """Load a module; returns the name of its PCI driver. Raises NodeIncomplete, ClaimBlocked."""
        load_module(self._kernel, module, self._deadlines.module, "; passthrough needs vfio-pci")
        return self._driver_of(module)

    def _driver_of(self, module: str) -> str:
        """The PCI driver of a loaded module; its name may differ from the module's."""
        # The entries of /sys/module/NAME/drivers are links named BUS:DRIVER, such as pci:vfio-pci.
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


class _RecordWriter:
    """The record of a group while it changes, and the journaling of each change."""

    def __init__(self, record: GroupRecord, note: Note) -> None:
        self.record = record
        self.note = note

    def add(self, function: FunctionRecord) -> None:
        """Add a function that nothing was done to yet. The next step journals it."""
        self.record = self.record.put(function)

    def done(self, function: FunctionRecord, done: Done) -> None:
        """Journal what is about to be done to a function, or that it is finished."""
        self.step(f"{done} {function.pci}", self.record.put(replace(function, done=done)))

    def step(self, step: str, record: GroupRecord) -> None:
        """Journal a record; it is the current one if that succeeds."""
        self.note(step, record.written)
        self.record = record


def _give_back(one: FunctionRecord, files: FunctionFiles, done: Callable[[Done], None]) -> None:
    """Restore the former driver and ``driver_override``; ``done`` is called before each change.

    A function that is gone, or that somebody else bound to another driver, is left alone. If somebody else
    wrote its override, that decides which driver it gets. If its former driver is not loaded any more, it
    stays without one: the kernel offers such functions to a driver when it is loaded.

    Raises FunctionInUse while a process has it open, FunctionInDoubt, FunctionNotMoved.
    """
    if not files.is_there:
        _log.warning("function is gone, so there is nothing to give back", function=one.pci)
        return
    override, driver = files.override(), files.driver()
    # It may be any of the names that these steps write, depending on how far the last one came.
    is_ours = override in {one.vfio, one.driver, one.override}
    if not is_ours:
        _log.warning(
            "driver_override was set by another program and stays", function=one.pci, override=override
        )
    if driver == one.vfio:
        if users := files.users():
            raise in_use(one.address, driver, users)
        done("giving-back")
        if is_ours:
            # Before unbind, as in _bind_one: whatever binds the function meanwhile, binds its former driver.
            _set(files, one.driver or one.override)
        files.unbind(driver, one.driver)
        driver = ""
    if driver == "":
        done("giving-back")
        _bind_former(one, files, is_ours=is_ours)
    elif driver != one.driver:
        _log.warning("function was bound by another program and stays", function=one.pci, driver=driver)
    if is_ours:
        done("giving-back")
        _set(files, one.override)


def _bind_former(one: FunctionRecord, files: FunctionFiles, *, is_ours: bool) -> None:
    if not one.driver:
        return
    if not is_ours:
        # Somebody else's override may name any driver, so it is not checked which one takes the function.
        files.offer("the driver that its driver_override names")
        return
    if not files.has_driver(one.driver):
        _log.warning("the function's former driver is not loaded", function=one.pci, driver=one.driver)
        return
    _set(files, one.driver)
    try:
        files.probe(one.driver)
    except FunctionNotMoved:
        # With its former override back, any driver that fits may take the function when it is loaded.
        _set(files, one.override)
        raise


def _set(files: FunctionFiles, name: str) -> None:
    if files.override() != name:
        files.set_override(name)


def functions_to_bind(
    pci: PciAddress, group: IommuGroup | None, gpus: Collection[PciAddress]
) -> tuple[PciFunction, ...]:
    """All functions of the group except bridges. GPUs come first, since they are the ones that may be in use.

    ``pci`` is the requested function, ``gpus`` all GPUs that may be given away with it. A bridge keeps its
    driver: vfio accepts a group whose bridges have pcieport or no driver (vfio_dev_viable), and vfio-pci
    binds no bridges.

    Raises NodeIncomplete if no IOMMU guards the function, and ClaimRefused if the group has GPUs that were
    not requested. Raises ClaimBlocked if a physical function has virtual ones, or if another function of the
    group works for the node, as a disk may. Such a group is not published, but it may have changed since.
    """
    if group is None or all(one.pci != pci for one in group.functions):
        raise NodeIncomplete(
            f"{pci} is in no IOMMU group, so a virtual machine could reach all of the node's memory "
            "through it",
            "turn on the IOMMU in the firmware and for the kernel (intel_iommu=on), then restart the node; "
            "vfio's mode without an IOMMU is never used",
        )
    others = [str(one.pci) for one in group.gpus if one.pci not in gpus]
    if others:
        raise ClaimRefused(
            f"{pci} shares IOMMU group {group.number} with {', '.join(others)}, which the claim does not "
            "ask for",
            "a virtual machine gets a group as a whole: ask for all of its GPUs in one claim",
        )
    for one in group.endpoints:
        if one.virtual:
            raise ClaimBlocked(
                f"{one.pci} has {len(one.virtual)} virtual functions, which cannot stay without their GPU",
                f"end their users, then turn them off (sriov-manage -d {one.pci}), or offer them instead",
            )
    others_at_work = (one for one in group.used_by_the_node if one.pci not in gpus)
    at_work = [f"{one.pci} ({one.driver})" for one in others_at_work]
    if at_work:
        raise ClaimBlocked(
            f"{pci} shares IOMMU group {group.number} with {', '.join(at_work)}, which the node would lose",
            "unbind it from its driver if nothing needs it, or move it to another slot",
        )
    return tuple(sorted(group.endpoints, key=lambda one: (not one.is_gpu, one.pci)))
