"""A node to which anything may happen, and a second look that says of which drivers nobody can tell why.

What is claimed, bound by hand, held open, spoiled, killed and restarted is up to whoever drives it. The world
keeps how each function stood before any claim touched it, by its own account and not by the plugin's.
"""

import errno
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fakegpu.machine.holds import Hold
from kubeletplugin.devices.hardware import pretended_users
from kubeletplugin.devices.vfio.binder import FUNCTIONS, GroupRecord
from kubeletplugin.devices.vfio.function_files import Deadlines
from tests.gpus import DriverError, FakeKernel, PciAddress, iommu_group_of
from tests.kubeletplugin.devices.kinds.passthrough.scene import PassthroughNode
from tests.kubeletplugin.fake_node import Crash, pci_parts
from tests.plugin import ClaimRef

PASSED = ((0,), (1,), (2, 3))
"""The GPUs of each device that is passed through, by position on the bus."""

SPOILED = ("driver_override", "drivers/nvidia/unbind", "drivers_probe", "modprobe", "vfio-pci/unbind")
_AT_ONCE = Deadlines(0.0, 0.0, 0.0, 0.0)


class DyingKernel:
    """The machine's kernel, at one of whose calls the process ends: before it is done, or after."""

    def __init__(self, kernel: FakeKernel) -> None:
        self._kernel = kernel
        self.calls = 0
        self.dies_before: int | None = None
        self.dies_after: int | None = None

    def spare(self) -> None:
        """Nobody dies any more."""
        self.dies_before = self.dies_after = None

    def write(self, path: Path, text: str, deadline_seconds: float) -> None:
        """Write, and perhaps die."""
        self._do(lambda: self._kernel.write(path, text, deadline_seconds))

    def load_module(self, name: str, deadline_seconds: float) -> None:
        """Load a module, and perhaps die."""
        self._do(lambda: self._kernel.load_module(name, deadline_seconds))

    def read(self, path: Path, deadline_seconds: float) -> str:
        """Read: nobody dies of that."""
        return self._kernel.read(path, deadline_seconds)

    def _do(self, call: Callable[[], None]) -> None:
        self.calls += 1
        if self.calls == self.dies_before:
            raise Crash(f"before call {self.calls}")
        call()
        if self.calls == self.dies_after:
            raise Crash(f"after call {self.calls}")


@dataclass(frozen=True, slots=True)
class Standing:
    """How a function stands: its driver, and its ``driver_override``, empty for none."""

    driver: str | None
    override: str


class World(PassthroughNode):
    """A node with its claims; its kernel answers at once, or never."""

    def __init__(self, folder: Path) -> None:
        self.holds: list[Hold] = []
        super().__init__(folder)
        self.dying = DyingKernel(self.kernel)
        self._pci = pci_parts(
            self.dying, self.sysfs, pretended_users(self.machine), self.controllers, _AT_ONCE
        )
        self.on_step = self._count_step
        self.dies_at_step: int | None = None
        self.endpoints = [
            function.pci
            for gpus in PASSED
            if (group := iommu_group_of(self.sysfs, self.gpus[gpus[0]])) is not None
            for function in group.endpoints
        ]
        self.claims: list[ClaimRef] = []
        self._count = 0
        self.restart()
        self.alone = {pci: self.standing(pci) for pci in self.endpoints}
        self.by_hand: dict[PciAddress, set[Standing]] = {}
        self._touched: set[PciAddress] = set()

    def standing(self, pci: PciAddress) -> Standing:
        """How a function stands now."""
        state = self.machine.node().kernel.functions[pci]
        return Standing(state.driver, state.override)

    def is_hung(self, pci: PciAddress) -> bool:
        """Whether the kernel has not ended yet what it was told to do with a function."""
        return any(one.pci == pci for one in self.machine.node().kernel.waiting)

    # What the kubelet and the API do.

    def create(self, number: int) -> None:
        """One more claim: of one of the devices that are passed through, or of a GPU for a container."""
        self._count += 1
        name = f"claim-{self._count}"
        if number < len(PASSED):
            self.claims.append(self.vm(name, *PASSED[number]))
        else:
            self.claims.append(self.claim(name, (number - len(PASSED)) % len(self.gpus)))

    def prepare_one(self, number: int) -> None:
        """Prepare a claim; what is refused is."""
        if self.claims:
            self._try(lambda: self.prepare(self.claims[number % len(self.claims)]))

    def unprepare_one(self, number: int) -> None:
        """Unprepare a claim."""
        if self.claims:
            self._try(lambda: self.unprepare(self.claims[number % len(self.claims)]))

    def delete_one(self, number: int) -> None:
        """A claim goes from the API, and the reconciler finds out."""
        if self.claims:
            ref = self.claims.pop(number % len(self.claims))
            del self.api[ref.namespace, ref.name]
            self._try(self.reconciler.run_once)

    def finish(self) -> None:
        """The plugin tries again what was left behind, and writes the specs that were lost."""
        self._try(self.reconciler.finish_releases)
        self._try(self.reconciler.restore_specs)

    def look(self) -> None:
        """The plugin looks at its GPUs."""
        with suppress(DriverError):
            self.discovery.snapshot()

    # What happens to the process.

    def die_at_call(self, calls: int, *, after: bool) -> None:
        """The process will end at one of the next calls of the kernel."""
        at = self.dying.calls + 1 + calls
        self.dying.dies_before, self.dying.dies_after = (None, at) if after else (at, None)

    def die_at_step(self, steps: int) -> None:
        """The process will end after one of the next steps."""
        self.dies_at_step = len(self.steps) + 1 + steps

    def end_process(self) -> None:
        """The process ends, with its sessions, and another one starts."""
        self.dying.spare()
        self.dies_at_step = None
        self.discovery.close()
        self.machine.settle()
        self.restart()

    def boot(self) -> None:
        """The machine starts anew: no process is left, and all functions have the drivers of a boot."""
        self.let_go()
        self.heal()
        self.dying.spare()
        self.dies_at_step = None
        self.discovery.close()
        self.reboot()
        self.alone = {pci: self.standing(pci) for pci in self.endpoints}
        self.by_hand.clear()

    # What others do.

    def hold(self, gpu: int) -> None:
        """Somebody whom nobody finds opens a GPU."""
        self.holds.append(self.machine.open_function(self.gpus[gpu % len(self.gpus)]))

    def let_go(self) -> None:
        """All of them let go, and the kernel ends what it was told."""
        while self.holds:
            self.holds.pop().release()
        self.machine.settle()

    def run_on(self, gpu: int) -> None:
        """A process that can be found uses a GPU, or it ends."""
        pci = self.gpus[gpu % len(self.gpus)]
        self.machine.set_processes(pci, () if self.machine.state.gpus[pci].process_ids else (4711,))

    def spoil(self, kind: int, place: int) -> None:
        """The kernel fails, lies or hangs at a file, once or until it is healed."""
        words = SPOILED[place % len(SPOILED)]
        what = ("fail", "ignore", "hang")[kind % 3]
        if what == "fail":
            self.machine.spoil_kernel("fail", words, error=(errno.EIO, errno.EBUSY)[place % 2], times=1)
        elif what == "ignore":
            self.machine.spoil_kernel("ignore", words, times=1)
        else:
            self.machine.spoil_kernel("hang", words)

    def heal(self) -> None:
        """The kernel is well again."""
        self.machine.heal_kernel()

    def rebind(self, function: int, driver: int) -> None:
        """An admin gives a function another driver, none, or its own, whoever has it."""
        pci = self.endpoints[function % len(self.endpoints)]
        if self.is_hung(pci):
            return
        self.heal()
        name = ("vfio-pci", "", "none")[driver % 3]
        folder = self.sysfs / "bus/pci/devices" / str(pci)
        before = self.standing(pci)
        self.kernel.load_module("vfio-pci", 0.0)
        self.kernel.write(folder / "driver_override", f"{name}\n", 0.0)
        if before.driver is not None and not self.machine.node().in_use(pci):
            self.kernel.write(self.sysfs / "bus/pci/drivers" / before.driver / "unbind", str(pci), 0.0)
        with suppress(OSError):
            self.kernel.write(self.sysfs / "bus/pci/drivers_probe", str(pci), 0.0)
        self._note_by_hand(pci)

    def reload_driver(self) -> None:
        """Somebody loads the NVIDIA driver anew, which takes what nobody has."""
        if self.machine.node().kernel.waiting:
            return
        self.discovery.close()
        self.machine.driver_gone()
        self.machine.driver_back()
        for pci in self.endpoints:
            self._note_by_hand(pci)

    # What must be true.

    def unexplained(self) -> list[str]:
        """The functions that stand otherwise than before, where neither the journal nor an admin says why."""
        found = []
        known = self._records()
        for pci in self.endpoints:
            if known.get(pci):
                continue
            now, allowed = self.standing(pci), {self.alone[pci], *self.by_hand.get(pci, ())}
            drivers, overrides = {one.driver for one in allowed}, {one.override for one in allowed}
            mixed = pci in self.by_hand and now.driver in drivers and now.override in overrides
            if (now not in allowed and not mixed) or self.is_hung(pci):
                found.append(f"{pci} has {now}, and was {sorted(map(str, allowed))}")
            if pci not in known:
                self.alone[pci] = now
                self.by_hand.pop(pci, None)
        return found

    def held_twice(self) -> list[str]:
        """The GPUs that more than one claim has."""
        return [str(pci) for pci in self.gpus if len(self.journal.holders(str(pci))) > 1]

    def not_as_prepared(self) -> list[str]:
        """The claims whose GPUs vfio should have and has not, though no admin touched them meanwhile."""
        held = [(one, entry) for entry in self.journal.entries() if entry.holds for one in entry.devices]
        self._touched &= {PciAddress.parse(pci) for one, _ in held for pci in one.gpus}
        return [
            f"{entry.uid} has {pci}, which has {self.standing(pci)}"
            for one, entry in held
            if entry.state == "prepared" and one.kind == "passthrough"
            for pci in map(PciAddress.parse, one.gpus)
            if pci not in self._touched and self.standing(pci).driver != "vfio-pci"
        ]

    def calm_down(self) -> None:
        """All trouble ends, and so do all claims."""
        self.heal()
        self.let_go()
        for pci in self.gpus:
            self.machine.set_processes(pci, ())
        self.end_process()
        for ref in self.claims:
            self.unprepare(ref)
            self.api.pop((ref.namespace, ref.name), None)
        self.claims.clear()
        self.reconciler.run_once()
        self.reconciler.finish_releases()

    def _records(self) -> dict[PciAddress, bool]:
        """The functions that the journal has, and whether it says that a claim may have changed them."""
        found: dict[PciAddress, bool] = {}
        for entry in self.journal.entries():
            for held in entry.devices if entry.holds else ():
                for one in GroupRecord.read({FUNCTIONS: held.record.get(FUNCTIONS, ())}).functions:
                    found[one.address] = found.get(one.address, False) or one.may_have_changed
        return found

    def _note_by_hand(self, pci: PciAddress) -> None:
        now = self.standing(pci)
        self._touched.add(pci)
        if pci in self._records():
            # An override that an admin set is left, and names whom the function goes to in the end.
            named = {"vfio-pci": "vfio-pci", "none": None}
            meant = Standing(named[now.override], now.override) if now.override in named else now
            self.by_hand.setdefault(pci, set()).update({now, meant})
        else:
            self.alone[pci] = now

    def _try(self, work: Callable[[], object]) -> None:
        try:
            with suppress(DriverError):
                work()
        except Crash:
            self.end_process()

    def _count_step(self, _name: str) -> None:
        if self.dies_at_step is not None and len(self.steps) >= self.dies_at_step:
            self.dies_at_step = None
            raise Crash("after a step")
