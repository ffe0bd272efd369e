"""Turns on the virtual functions of a GPU if the node configuration asks for it, and never turns any off.

A write to ``sriov_numvfs`` fails with ENOENT while the NVIDIA driver has the GPU, since that driver has no
``sriov_configure``. NVIDIA's ``sriov-manage -e`` therefore binds the GPU to ``pci-pf-stub``, writes the
number of all functions, and binds it back. This module does the same by the same files. It does not run that
program, a shell script that needs a shell, lspci and setpci.

Nothing is journaled. ``driver_override`` tells how far a change came, and the kernel keeps it when this
process ends: it names ``pci-pf-stub`` from before the GPU is taken, and then the NVIDIA driver until that has
the GPU and its virtual functions.
"""

from __future__ import annotations

from pathlib import Path

from driver.errors import ClaimBlocked, DriverError, NodeIncomplete, NvmlError
from driver.hardware.functions import NVIDIA_KERNEL_DRIVER, PciFunction
from driver.hardware.inventory import Discovery
from driver.hardware.pci_view import function_folder, pci_view, read_function
from driver.hardware.persistence import Persistence
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.claims.journal.locks import KeyedLocks, gpu_key
from kubeletplugin.devices.host.kernel import Kernel
from kubeletplugin.devices.kinds.passthrough.held import restarting_sessions
from kubeletplugin.devices.vfio import failures
from kubeletplugin.devices.vfio.function_files import Deadlines, FunctionFiles, Users
from kubeletplugin.devices.vfio.modules import load_module
from kubeletplugin.kubelet.wire.controllers import Controllers

STUB = "pci-pf-stub"
"""The kernel's driver, and its module, that only makes virtual functions (pci-pf-stub.c)."""

_OURS = frozenset({STUB, NVIDIA_KERNEL_DRIVER})
"""What ``driver_override`` says while a change is under way."""

_BY_HAND = ", or turn the virtual functions on by hand"
_LOCK_SECONDS = 30.0
_NUMBER_SECONDS = 30.0
"""Long, since the write returns only after the kernel has probed each of the new functions."""

_log = get_logger("virtual-functions")


class VirtualFunctions:
    """The virtual functions of a node's GPUs. Safe to use from any thread; it takes the GPU's lock itself."""

    def __init__(
        self,
        sysfs_root: Path,
        kernel: Kernel,
        users: Users,
        sessions: tuple[Discovery, Controllers],
        claims: tuple[Journal, KeyedLocks],
        deadlines: Deadlines | None = None,
    ) -> None:
        """``sessions`` have NVML open on this node; ``claims`` are the journal and its locks."""
        self._sysfs_root = sysfs_root
        self._kernel = kernel
        self._users = users
        self._discovery, self._controllers = sessions
        self._persistence = Persistence(self._discovery)
        self._journal, self._locks = claims
        self._deadlines = deadlines or Deadlines()
        # Until the first finish() has looked: an earlier process may have crashed half-way.
        self._may_be_unfinished = True

    def enable(self, pci: PciAddress) -> None:
        """Turn on all virtual functions of a GPU, unless some are on already.

        Raises ClaimBlocked while a claim or a process has the GPU, NodeIncomplete if the kernel has no
        ``pci-pf-stub``, NvmlError, and the errors in ``kubeletplugin.devices.vfio.failures``.
        """
        with self._locks.holding([gpu_key(str(pci))], _LOCK_SECONDS):
            # Read under the lock of the GPU, which claims take as well.
            function = self._physical(pci)
            if function.virtual and function.driver == NVIDIA_KERNEL_DRIVER:
                return
            # A claim's process may have no file open yet, so the journal is asked too.
            self._refuse_if_held(pci)
            if function.driver not in {None, NVIDIA_KERNEL_DRIVER, STUB}:
                raise failures.moved(pci, function.driver or "")
            load_module(self._kernel, STUB, self._deadlines.module, _BY_HAND)
            self._without_persistence(pci)
            self._may_be_unfinished = True
            # The NVIDIA driver keeps a GPU while any process has it open, so all NVML sessions close first.
            with self._controllers.letting_go(), self._discovery.let_go():
                self._turn_on(function)
                self._give_back(pci)
            self._with_persistence(pci)
            self._check(function)
        _log.info("virtual functions turned on", gpu=str(pci), number=function.total_virtual)

    def finish(self) -> None:
        """Give GPUs back that a crash, or a kernel that did not answer, has left half-way.

        Does nothing unless there may be such a GPU. A failure is logged, and the next call tries again.
        """
        if not self._may_be_unfinished:
            return
        left = False
        for function in pci_view(self._sysfs_root).physical:
            if function.total_virtual and self._looks_unfinished(function):
                try:
                    self._finish(function.pci)
                except DriverError as error:
                    left = True
                    _log.warning(
                        "cannot give the GPU back to the NVIDIA driver yet",
                        gpu=str(function.pci),
                        error=error.logged,
                    )
        self._may_be_unfinished = left

    def _looks_unfinished(self, function: PciFunction) -> bool:
        # A function without a driver was not offered to the NVIDIA driver after it was made.
        if function.driver == NVIDIA_KERNEL_DRIVER:
            return not all(self._files(pci).driver() for pci in function.virtual)
        return function.driver in {None, STUB}

    def _finish(self, pci: PciAddress) -> None:
        with self._locks.holding([gpu_key(str(pci))], _LOCK_SECONDS):
            # A claim that has the GPU for a virtual machine has its driver on purpose.
            if self._journal.holders(str(pci)) or not self._looks_unfinished(self._physical(pci)):
                return
            if self._files(pci).override() in _OURS:
                with restarting_sessions(self._discovery, self._controllers):
                    self._give_back(pci)
                _log.info(
                    "gave the GPU back to the NVIDIA driver after an unfinished change of its virtual "
                    "functions",
                    gpu=str(pci),
                )

    def _turn_on(self, function: PciFunction) -> None:
        """Make all functions by the stub; on an error the GPU is given back as far as possible."""
        files = self._files(function.pci)
        try:
            self._to_stub(files)
            if not function.virtual:
                self._write_number(function, files)
        except failures.FunctionInDoubt:
            # The kernel still holds the function's lock, so giving it back would only wait for that.
            raise
        except ClaimBlocked:
            try:
                self._give_back(function.pci)
            except ClaimBlocked as second:
                _log.warning(
                    "cannot give the GPU back to the NVIDIA driver yet",
                    gpu=str(function.pci),
                    error=second.logged,
                )
            raise

    def _to_stub(self, files: FunctionFiles) -> None:
        driver, override = files.driver(), files.override()
        # An override of somebody else is not overwritten, since it could not be restored after a crash.
        if override and override not in _OURS:
            raise failures.FunctionNotMoved(
                f"{files.pci}: another program set its driver_override to {override}",
                "clear it, or turn the virtual functions on by hand",
            )
        if driver == STUB:
            return
        if driver and (users := files.users()):
            raise failures.in_use(files.pci, driver, users)
        # The override comes before unbind, so that no other driver takes the GPU in between.
        files.set_override(STUB)
        if driver:
            files.unbind(driver, STUB)
        files.probe(STUB)

    def _write_number(self, function: PciFunction, files: FunctionFiles) -> None:
        path = function_folder(self._sysfs_root, function.pci) / "sriov_numvfs"
        what = "turning on its virtual functions"
        try:
            # Always all of them, as NVIDIA's script does.
            self._kernel.write(path, str(function.total_virtual), _NUMBER_SECONDS)
        except TimeoutError as error:
            raise failures.in_doubt(function.pci, what, _NUMBER_SECONDS, files.users()) from error
        except OSError as error:
            raise failures.refused(function.pci, what, error) from error

    def _give_back(self, pci: PciAddress) -> None:
        """Bind the NVIDIA driver to the GPU, then to its virtual functions, which it may refuse before."""
        files = self._files(pci)
        driver = files.driver()
        if driver in {"", STUB} and not files.has_driver(NVIDIA_KERNEL_DRIVER):
            _log.warning("the NVIDIA driver is not loaded", gpu=str(pci))
        elif driver in {"", STUB}:
            # Before unbind: whatever binds the GPU meanwhile, binds the NVIDIA driver.
            files.set_override(NVIDIA_KERNEL_DRIVER)
            if driver:
                files.unbind(driver, NVIDIA_KERNEL_DRIVER)
            files.probe(NVIDIA_KERNEL_DRIVER)
        function = read_function(self._sysfs_root, pci)
        for virtual in () if function is None else function.virtual:
            one = self._files(virtual)
            # The claim that holds a function decides about its driver.
            if not one.driver() and not self._journal.holders(str(virtual)):
                one.offer(NVIDIA_KERNEL_DRIVER)
        if files.override() in _OURS:
            files.set_override("")

    def _check(self, before: PciFunction) -> None:
        """Raise FunctionNotMoved unless all functions exist and have a driver."""
        function = self._physical(before.pci)
        without = [pci for pci in function.virtual if not self._files(pci).driver()]
        if len(function.virtual) < function.total_virtual or without:
            raise failures.FunctionNotMoved(
                f"{function.pci}: {len(function.virtual)} of its {function.total_virtual} virtual "
                f"functions are on, {len(without)} of them without a driver",
                "check that SR-IOV and the IOMMU are on in the firmware; the kernel log (dmesg) says more",
            )

    def _physical(self, pci: PciAddress) -> PciFunction:
        function = read_function(self._sysfs_root, pci)
        if function is None or not function.is_gpu or function.physical or not function.total_virtual:
            raise NodeIncomplete(
                f"{pci} is not a GPU that can have virtual functions",
                "turn SR-IOV on in the firmware, or remove virtualFunctions from its rule",
            )
        return function

    def _refuse_if_held(self, pci: PciAddress) -> None:
        if holders := self._journal.holders(str(pci)):
            raise ClaimBlocked(
                f"{len(holders)} claims hold GPU {pci}, so its virtual functions stay off",
                "it is tried again; end the pods that have the GPU",
            )

    def _without_persistence(self, pci: PciAddress) -> None:
        """Turn persistence mode off, by which the driver or nvidia-persistenced keeps the GPU open."""
        if self._physical(pci).driver == NVIDIA_KERNEL_DRIVER:
            self._set_persistence(pci, on=False)

    def _with_persistence(self, pci: PciAddress) -> None:
        """Turn persistence mode on, as sriov-manage does at its end, whatever it was before.

        So nothing has to be remembered over a crash.
        """
        self._set_persistence(pci, on=True)

    def _set_persistence(self, pci: PciAddress, *, on: bool) -> None:
        try:
            self._persistence.set(pci, on=on)
        except NvmlError as error:
            _log.warning("cannot change persistence mode", gpu=str(pci), on=on, error=str(error))

    def _files(self, pci: PciAddress) -> FunctionFiles:
        return FunctionFiles(self._kernel, self._sysfs_root, pci, self._users, self._deadlines)
