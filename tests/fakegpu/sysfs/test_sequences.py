"""Whatever is done to a pretended node: no function shows two drivers, and all that it shows agrees."""

import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fakegpu.machine.holds import Hold
from fakegpu.sysfs.drivers import loaded_drivers
from tests.examples import examples
from tests.fakegpu.sysfs.trees import disagreements
from tests.gpus import (
    FakeKernel,
    FakeMachine,
    FakeNvml,
    NvmlError,
    PciAddress,
    build_device_nodes,
    build_sysfs,
    functions_of,
)

MACHINE = "passthrough-quad"
SPEC = FakeMachine.open(MACHINE).spec
PHYSICAL = [pci for pci, one in functions_of(SPEC).items() if one.physical is None]
FIRST_VIRTUAL = [
    pci for pci, one in functions_of(SPEC).items() if one.physical is not None and not one.number
]
FUNCTIONS = [*PHYSICAL, *FIRST_VIRTUAL]
GPUS = [slot.pci for slot in SPEC.slots]
DRIVERS = ["nvidia", "vfio-pci", "snd_hda_intel", "xhci_hcd", "pcieport"]

functions = st.sampled_from(FUNCTIONS)
gpus = st.sampled_from(GPUS)
drivers = st.sampled_from(DRIVERS)


class PretendedNode(RuleBasedStateMachine):
    """Writes to any file, in any order, with those who hold functions open and let go of them."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        self.machine = FakeMachine.open(MACHINE)
        self.sysfs = build_sysfs(folder, self.machine)
        self.root = folder / "driver"
        build_device_nodes(self.root, self.machine)
        self.kernel = FakeKernel(self.sysfs, self.machine)
        self.holds: list[Hold] = []
        self.session: FakeNvml | None = None

    def teardown(self) -> None:
        for hold in self.holds:
            hold.release()
        self._folder.cleanup()

    def _write(self, path: Path, text: str) -> None:
        with suppress(OSError):  # a refusal, or a write that waits: it must change nothing by halves
            self.kernel.write(path, text, 0.0)

    @rule(pci=functions, driver=drivers)
    def unbind(self, pci: PciAddress, driver: str) -> None:
        self._write(self.sysfs / "bus/pci/drivers" / driver / "unbind", str(pci))

    @rule(pci=functions, driver=drivers)
    def bind(self, pci: PciAddress, driver: str) -> None:
        self._write(self.sysfs / "bus/pci/drivers" / driver / "bind", str(pci))

    @rule(pci=functions)
    def probe(self, pci: PciAddress) -> None:
        self._write(self.sysfs / "bus/pci/drivers_probe", str(pci))

    @rule(pci=functions, driver=st.sampled_from(["vfio-pci", "nvidia", "pci-pf-stub", "", "none"]))
    def override(self, pci: PciAddress, driver: str) -> None:
        self._write(self.sysfs / "bus/pci/devices" / str(pci) / "driver_override", f"{driver}\n")

    @rule(pci=gpus, number=st.sampled_from(["0", "1", "2", "33", "x"]))
    def set_virtual(self, pci: PciAddress, number: str) -> None:
        self._write(self.sysfs / "bus/pci/devices" / str(pci) / "sriov_numvfs", number)

    @rule()
    def load_vfio(self) -> None:
        self.kernel.load_module("vfio-pci", 0.0)

    @rule()
    def load_stub(self) -> None:
        self.kernel.load_module("pci-pf-stub", 0.0)

    @rule(pci=functions)
    def hold(self, pci: PciAddress) -> None:
        self.holds.append(self.machine.open_function(pci))

    @rule()
    def let_go(self) -> None:
        while self.holds:
            self.holds.pop().release()
        self.machine.settle()
        assert not self.machine.node().kernel.waiting or self.session is not None

    @precondition(lambda self: self.session is None and self.machine.state.driver_loaded)
    @rule()
    def begin_session(self) -> None:
        self.session = self.machine.nvml()
        self.session.init()
        for index in range(self.session.device_count()):
            self.session.device_by_index(index).uuid()

    @precondition(lambda self: self.session is not None)
    @rule()
    def end_session(self) -> None:
        session, self.session = self.session, None
        assert session is not None
        with suppress(NvmlError):  # the driver was loaded anew meanwhile
            session.shutdown()

    @rule()
    def reload_driver(self) -> None:
        self.machine.driver_gone()
        assert "nvidia" not in {
            one.name for one in loaded_drivers(self.machine.spec, self.machine.node().kernel.modules)
        }
        self.machine.driver_back()

    @rule()
    def reboot(self) -> None:
        self.machine.reboot()
        states = self.machine.node().kernel.functions
        assert all(states[pci].driver == "nvidia" and not states[pci].override for pci in GPUS)

    @invariant()
    def all_that_is_shown_agrees(self) -> None:
        assert disagreements(self.machine, self.sysfs, self.root) == []

    @invariant()
    def two_gpus_never_have_one_minor(self) -> None:
        listed = [self.machine.state.gpus[pci].minor for pci in self.machine.state.listed()]
        assert len(set(listed)) == len(listed)


TestPretendedNode = PretendedNode.TestCase
TestPretendedNode.settings = settings(max_examples=examples(30), stateful_step_count=20, deadline=None)
