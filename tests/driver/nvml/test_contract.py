"""The fake on every machine, the binding over a C-shaped library, and the real NVML keep one contract."""

import ctypes
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

from driver.nvml.health.calls import EccErrors
from driver.nvml.library import SONAME
from driver.nvml.use.calls import Utilisation
from fakegpu.machine.cgroups import FakeCgroups
from fakegpu.use.state import ProcessState
from tests.driver.mig_machines import UNLIKE
from tests.driver.nvml.c_library import CLibrary, bound, unload
from tests.driver.nvml.c_library_health import ACTIONS
from tests.driver.nvml.contract_memory import MEMORY_CLAUSES, MakeGroup
from tests.driver.nvml.contract_mig import CUTTING_CLAUSES
from tests.driver.nvml.contract_sharing import MODE_CLAUSES
from tests.gpus import (
    FabricHealth,
    FakeMachine,
    NotSupported,
    Nvml,
    NvmlCallFailed,
    NvmlDevice,
    NvmlError,
    ProcessUse,
    RealNvml,
    RemappedRows,
    known_machines,
)
from tools.hardware.contract.run import CLAUSES, keep_clause

MODES = ("t4", "hgx-h100", "dgx-a100", "a100-vgpu-guest")
"""Without MIG, with MIG at once, with MIG by a reset, and a guest."""
LIMITS = ("l4-quad", "hgx-h100", "dgx-a100", "a100-vgpu-guest")
"""With memory limits, and each kind that has none."""


def _real_gpu_is_there() -> bool:
    nvml = RealNvml()
    try:
        nvml.init()
    except NvmlError:
        return False
    nvml.shutdown()
    return True


def _subjects() -> list[str]:
    subjects = [f"{kind}:{machine}" for kind in ("fake", "binding") for machine in known_machines()]
    return [*subjects, "real"] if _real_gpu_is_there() else subjects


def _nvml(subject: str) -> Nvml:
    """A fresh implementation of the kind, on the machine, that ``subject`` names."""
    kind, _, machine = subject.partition(":")
    unload()
    if kind == "real":
        pynvml.nvmlLib = ctypes.CDLL(SONAME)
        return RealNvml()
    nvml = _with_mig(FakeMachine.open(machine)).nvml()
    return nvml if kind == "fake" else bound(CLibrary(nvml))


def _with_mig(machine: FakeMachine) -> FakeMachine:
    """The machine with MIG on where it takes a reset, on its last GPU."""
    if machine.spec.product.mig is not None and machine.spec.product.mig_needs_reset:
        nvml = machine.nvml()
        nvml.init()
        last = nvml.device_count() - 1
        nvml.device_by_index(last).set_mig_mode(True)
        machine.reset(last)
    return machine


# One test for each subject, not for each clause: making 2,000 tests costs more than running the clauses.
@pytest.mark.parametrize("subject", _subjects())
def test_keeps_the_contract(subject: str) -> None:
    results = [keep_clause(clause, _nvml(subject)) for clause in CLAUSES]

    assert [one for one in results if one.outcome not in ("kept", "nothing to check")] == []


@pytest.mark.parametrize("kind", ["fake", "binding"])
@pytest.mark.parametrize("machine", UNLIKE)
def test_keeps_the_contract_when_it_cuts(machine: str, kind: str) -> None:
    """Never on a real GPU: its owner decides on its MIG mode."""
    for clause in CUTTING_CLAUSES:
        clause(_nvml(f"{kind}:{machine}"))


@pytest.mark.parametrize("kind", ["fake", "binding"])
@pytest.mark.parametrize("machine", MODES)
def test_keeps_the_contract_of_compute_modes(machine: str, kind: str) -> None:
    """Never on a real GPU: its owner decides on its compute mode."""
    for clause in MODE_CLAUSES:
        clause(_nvml(f"{kind}:{machine}"))


@pytest.mark.parametrize("kind", ["fake", "binding", "binding that tells no limits in numbers"])
@pytest.mark.parametrize("machine", LIMITS)
def test_keeps_the_contract_of_memory_limits(machine: str, kind: str, tmp_path: Path) -> None:
    """Never on a real GPU: its control groups are somebody's containers."""
    for clause in MEMORY_CLAUSES:
        unload()
        fake = _with_mig(FakeMachine.open(machine))
        groups = fake.pretend_cgroups(tmp_path / clause.__name__)
        library = CLibrary(fake.nvml())
        library.tells_no_limits_in_numbers = "numbers" in kind
        clause(fake.nvml() if kind == "fake" else bound(library), _maker(groups))


def _maker(groups: FakeCgroups) -> MakeGroup:
    return lambda path: groups.make(path).path


@pytest.mark.parametrize("machine", known_machines())
def test_the_binding_reads_from_c_what_the_fake_says_in_words(machine: str) -> None:
    fake = _with_mig(FakeMachine.open(machine))
    fake.set_processes(0, (4711, 12))
    straight = fake.nvml()
    straight.init()
    first_has_mig_on = fake.state.gpus[fake.pci(0)].mig.enabled
    if fake.spec.product.virtualization != "vgpu" and not first_has_mig_on:
        straight.device_by_index(0).set_compute_mode("exclusive-process")
    straight.device_by_index(0).set_persistence_mode(True)
    _cut(fake, straight.device_by_index(straight.device_count() - 1))
    _compare(fake)


SICK = RemappedRows(1, 3, pending=True, failed=True)
FABRICS = (
    FabricHealth("unhealthy", ("access-timeout", "route-unhealthy")),
    FabricHealth("limited-capacity", ("degraded-bandwidth",)),
    FabricHealth("unhealthy", ("wrong-configuration",)),
    FabricHealth("healthy", ("route-recovery",)),
)


@pytest.mark.parametrize("machine", ["hgx-h100", "gb200-tray", "t4"])
def test_the_binding_reads_of_sick_and_busy_gpus_what_the_fake_says(machine: str) -> None:
    fake = FakeMachine.open(machine)
    fake.driver_back("615.36.01")  # it tells of memory that no reset repairs
    for index, action in zip(range(len(fake.spec.slots)), (*ACTIONS[1:], None), strict=False):
        fake.recovery_action(index, action)
    fake.page_pending(0, True)
    fake.unrepairable(0, True)
    fake.rows(0, SICK)
    fake.ecc(0, EccErrors(7, 2))
    for index, fabric in enumerate(FABRICS if fake.spec.fabric else ()):
        fake.fabric_health(index % len(fake.spec.slots), fabric)
    fake.use(
        0,
        compute=0.75,
        memory=0.5,
        power_milliwatts=51_200,
        temperature_celsius=66,
        processes={71: 2**30, 12: ProcessState(12, 2**31, 0.25), 40: ProcessState(40, None)},
    )
    first = _compare(fake)

    assert first.utilisation() == Utilisation(0.75, 0.5)
    assert first.processes() == (ProcessUse(12, 2**31), ProcessUse(40, None), ProcessUse(71, 2**30))
    if machine == "t4":
        assert first.retired_pages_pending()
    else:
        assert (first.recovery_action(), first.remapped_rows()) == ("reset", SICK)
        assert (first.unrepairable_memory(), first.ecc_errors()) == (True, EccErrors(7, 2))
    if machine == "gb200-tray":
        assert first.fabric_health() == FABRICS[0]


def _compare(fake: FakeMachine) -> NvmlDevice:
    """Ask fake and binding the same of each GPU; gives the first GPU as the binding has it."""
    straight, binding = fake.nvml(), bound(CLibrary(fake.nvml()))
    straight.init()
    binding.init()
    for index in range(straight.device_count()):
        one, other = straight.device_by_index(index), binding.device_by_index(index)
        for name in (
            "uuid", "minor", "index", "pci", "name", "brand", "architecture", "compute_capability",
            "memory_bytes", "addressing_mode", "numa_node", "nvlinks", "mig_mode", "fabric", "module_id",
            "virtualization", "vgpu_types", "licensable_features", "compute_mode", "persistence_mode",
            "process_ids", "mig_without_reset", "gpu_instance_profiles", "mig_devices", "gpu_instances",
            "mig_processes", "recovery_action", "remapped_rows", "retired_pages_pending",
            "unrepairable_memory", "ecc_errors", "fabric_health", "memory_use",
            "utilisation", "power_milliwatts", "power_limit_milliwatts", "temperature_celsius", "processes",
            "busy_processes",
        ):  # fmt: skip
            assert _answer(getattr(other, name)) == _answer(getattr(one, name)), name
    return binding.device_by_index(0)


def _cut(machine: FakeMachine, device: NvmlDevice) -> None:
    """Cut a GPU that has MIG: two instances, the larger one cut again, and a process in each part."""
    try:
        device.set_mig_mode(True)
    except NotSupported:
        return
    if not device.mig_mode().enabled:
        return
    small, large = device.gpu_instance_profiles()[:2]
    device.create_gpu_instance(small.id, device.gpu_instance_placements(small.id)[-1])
    device.create_gpu_instance(large.id, device.gpu_instance_placements(large.id)[0])
    for instance in device.gpu_instances():
        for _ in range(2 if instance.profile_id == large.id else 1):
            device.create_compute_instance(instance.id, 0)
    for number, mig in enumerate(device.mig_devices()):
        machine.set_processes(mig.uuid, (900 + number, 12))


def _answer(question: Callable[[], object]) -> object:
    try:
        return question()
    except NvmlCallFailed as error:
        return type(error), error.code
